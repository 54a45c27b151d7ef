import { ScriptedAgent, success } from "../../../api/testing/scripted-agent.ts";
import { receiverSecret, startReceiver } from "../../../api/testing/receiver.ts";
import type { Config } from "../../../shared/config/config.ts";
import type { LeasedJob } from "../../../shared/wire/agent/lease.ts";
import { jsonRequest } from "../../command/json-request.ts";
import { type LiveCounts, type LiveEngine, token } from "./engine.ts";
import { openStream, type Stream } from "./stream.ts";

export const liveOperations = {
  queued: "first minute of a client that follows a queued job",
  running: "first minute of a client that follows a running job, nothing printed",
  unwatched: "piece of output that nobody follows",
  watched: "piece of output that one client follows",
  watchedByTwo: "piece of output that two clients follow",
  end: "end of a job, beyond that of one that nobody follows",
  webhook: "webhook of one job to one receiver",
  webhooksTogether: "webhook, if 20 jobs end together",
  webhookMinute: "a minute with a receiver, while no job ends",
} as const;
export type LiveOperation = keyof typeof liveOperations;
export type LiveCosts = Readonly<Record<LiveOperation, LiveCounts>>;

const together = 20;
const pieces = 3;

export type StartEngine = (changes?: Partial<Config>) => Promise<LiveEngine>;

/** What events and webhooks cost on an engine. */
export async function measureLive(start: StartEngine, minuteMs = 60_000): Promise<LiveCosts> {
  const receiver = await startReceiver();
  try {
    const endpoint = { url: receiver.url, secrets: [receiverSecret] };
    await using plain = await start();
    await using calling = await start({
      webhook_endpoints: { all: endpoint },
      webhook_private_addresses: ["127.0.0.1"],
    });
    const without = await measureEnds(plain, async () => {});
    const called = await measureEnds(calling, (count) => receiver.calls(count));
    return {
      ...(await measureEvents(plain, minuteMs)),
      webhook: less(called.one, without.one),
      webhooksTogether: less(called.many, without.many),
      webhookMinute: less(called.minute, without.minute),
    };
  } finally {
    await receiver.close();
  }
}

async function measureEvents(engine: LiveEngine, minuteMs: number) {
  const { submit, poll, send } = driver(engine);
  const follow = async (id: string): Promise<Stream> => {
    const stream = await openStream(engine, id);
    await engine.pass(minuteMs);
    return stream;
  };
  const waiting = await submit();
  const [idle, queued] = await costOf(engine, () => follow(waiting));
  await idle.close();

  const other = await submit();
  const jobs = await poll();
  const leaseOf = (id: string) => jobs.find((job) => job.execution_id === id)?.lease_id ?? "";
  const printTo = async (id: string, n: number): Promise<void> => {
    const piece = { stream: "stdout", offset: 2 * n, data_base64: btoa("x\n") };
    await send("POST", `/agent/v1/leases/${leaseOf(id)}/logs`, { parts: [piece] });
  };
  const finish = (id: string) => send("POST", `/agent/v1/leases/${leaseOf(id)}/result`, success);
  const each = async (work: (n: number) => Promise<unknown>) => {
    const [, all] = await costOf(engine, async () => {
      for (let n = 0; n < pieces; n++) {
        await work(n);
        await engine.settled();
      }
    });
    return divided(all, pieces);
  };
  const unwatched = await each((n) => printTo(other, n));
  const [, endUnwatched] = await costOf(engine, () => finish(other));

  const followed = await submit();
  jobs.push(...(await poll()));
  const [stream, running] = await costOf(engine, () => follow(followed));
  const watched = await each(async (n) => {
    await printTo(followed, n);
    await stream.until("event: stdout");
  });
  const second = await openStream(engine, followed);
  for (let n = 0; n < pieces; n++) await second.until("event: stdout");
  const watchedByTwo = await each(async (n) => {
    await printTo(followed, pieces + n);
    await Promise.all([stream, second].map((one) => one.until("event: stdout")));
  });
  await second.close();
  const [, endWatched] = await costOf(engine, async () => {
    await finish(followed);
    await stream.until("event: end");
  });
  await stream.close();
  const end = less(endWatched, endUnwatched);
  return {
    queued,
    running,
    unwatched,
    watched,
    watchedByTwo,
    end,
  };
}

/** The end of one job, of each of several that end together, and a minute without any. */
async function measureEnds(engine: LiveEngine, called: (count: number) => Promise<unknown>) {
  const { submit, poll, send } = driver(engine);
  for (let n = 0; n < 2 + together; n++) await submit();
  const jobs = await poll();
  const finish = ({ lease_id }: LeasedJob) =>
    send("POST", `/agent/v1/leases/${lease_id}/result`, success);
  const [first, single, ...others] = jobs;
  if (!first || !single || others.length !== together) {
    throw new Error("the agent did not get all jobs");
  }
  await finish(first);
  await called(1);
  const [, one] = await costOf(engine, async () => {
    await finish(single);
    await called(2);
  });
  const [, many] = await costOf(engine, async () => {
    await Promise.all(others.map(finish));
    await called(jobs.length);
  });
  const [, minute] = await costOf(engine, () => engine.idleMinute());
  return { one, many: divided(many, together), minute };
}

function driver(engine: LiveEngine) {
  const agent = new ScriptedAgent("http://unused", "");
  async function send(method: string, path: string, body?: object): Promise<unknown> {
    const headers = path.startsWith("/agent/") ? { Authorization: `Bearer ${token}` } : {};
    const reply = await engine.fetch(path, jsonRequest(method, body, headers));
    if (!reply.ok) throw new Error(`${method} ${path}: ${reply.status} ${await reply.text()}`);
    return reply.json();
  }
  return {
    send,
    submit: async (): Promise<string> => {
      const { job_id } = (await send("POST", "/execute/async", { code: "1" })) as {
        job_id: string;
      };
      return job_id;
    },
    poll: async (): Promise<LeasedJob[]> => {
      const asked = agent.pollRequest({ slots: 100, free_slots: 100 });
      return ((await send("POST", "/agent/v1/poll", asked)) as { jobs: LeasedJob[] }).jobs;
    },
  };
}

async function costOf<T>(engine: LiveEngine, work: () => Promise<T>): Promise<[T, LiveCounts]> {
  await engine.settled();
  const before = await engine.counts();
  const done = await work();
  await engine.settled();
  return [done, less(await engine.counts(), before)];
}

const less = (all: LiveCounts, part: LiveCounts) => combined(all, (n, name) => n - part[name]);
const divided = (all: LiveCounts, by: number) => combined(all, (n) => n / by);

function combined(all: LiveCounts, change: (n: number, name: keyof LiveCounts) => number) {
  const names = Object.keys(all) as (keyof LiveCounts)[];
  return Object.fromEntries(names.map((name) => [name, change(all[name], name)])) as LiveCounts;
}
