// First, as it brings the app, which teaches zod to describe itself.
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { setImmediate as nextTick } from "node:timers/promises";
import { expect, test, vi } from "vitest";
import { createApp } from "../../api/app.ts";
import type { Deps, Notifier } from "../../api/deps.ts";
import { findExecution } from "../../api/jobs/sql.ts";
import { serverClient } from "../../api/platform/libsql-server.ts";
import { memoryNotifier, readChanges } from "../../api/platform/notifier.ts";
import { postByUndici } from "../../api/platform/sqlite.node.ts";
import { database } from "../../api/store/database.ts";
import { expire, removeOld } from "../../api/sweep.ts";
import { readyReport, ScriptedAgent, sha256, success } from "../../api/testing/scripted-agent.ts";
import { startSqld } from "../../api/testing/start-stores.ts";
import { testDeps } from "../../api/testing/temp-store.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { type PollReply, type ResultReply, takeHeader } from "../../shared/wire/leases.ts";
import { markdownTable } from "../lab/bench/results.ts";
import { jsonRequest } from "../operate/command.ts";
import { fillSections } from "./configuration.ts";

const page = resolve("docs/scaling.md");
const token = "a-token-of-16-characters";

/** How often each operation is done; its share of the sum is what it costs. */
const times = 20;

const none = { calls: 0, statements: 0, writes: 0, rowsRead: 0, rowsWritten: 0, wakes: 0 };
type Cost = typeof none;

/** The service's routes and store in this process, over a libSQL server that is counted. Time passes when it waits. */
async function startCounted() {
  await using ends = new AsyncDisposableStack();
  // The client makes its requests smaller after one that took long, as on a busy machine.
  vi.useFakeTimers({ toFake: ["performance"] });
  ends.defer(() => void vi.useRealTimers());
  const folder = tempFolder();
  const sqld = ends.adopt(await startSqld(join(folder, "db")), (server) => server.close());
  const sum = { ...none };
  let now = Date.now();

  const postBy = postByUndici(60_000);
  const post: typeof postBy = async (...given) => {
    const answer = await postBy(...given);
    const written = sumOf(answer.text, "rows_written");
    sum.calls += 1;
    sum.writes += Number(written > 0);
    sum.rowsRead += sumOf(answer.text, "rows_read");
    sum.rowsWritten += written;
    return answer;
  };
  const client = serverClient({ url: sqld.url, post, nextTick });
  ends.defer(() => client.close());
  const execute = client.execute.bind(client);
  const batch = client.batch.bind(client);
  client.execute = (...given: Parameters<typeof execute>) => {
    sum.statements += 1;
    return execute(...given);
  };
  client.batch = (...given) => {
    sum.statements += given[0].length;
    return batch(...given);
  };

  const local = memoryNotifier();
  /** Nobody wakes a poll before its time is up, and here time is up at once. */
  const notifier: Notifier = {
    notify: (topic) => {
      sum.wakes += 1;
      return local.notify(topic);
    },
    subscribe: () => {
      sum.wakes += 1;
      return {
        next: (timeoutMs) => (
          (now += timeoutMs),
          Promise.resolve({ isWoken: false, forJob: false })
        ),
        wants() {},
        settle() {},
        close() {},
      };
    },
  };
  const config = {
    agent_tokens: [token],
    database_url: sqld.url,
    api_rate_limit_requests: 1_000_000,
    max_queue_size: 10_000,
  };
  const deps: Deps = {
    ...testDeps(database(client), folder, () => now, config),
    notifier,
    isWatched: true,
  };
  const kept = ends.move();
  return {
    deps,
    app: createApp(deps),
    advance: (ms: number) => (now += ms),
    costOf: async (count: number, work: () => Promise<unknown>): Promise<Cost> => {
      const before = { ...sum };
      for (let n = 0; n < count; n++) await work();
      const names = Object.keys(none) as (keyof Cost)[];
      const took = names.map((name) => [name, (sum[name] - before[name]) / count]);
      return Object.fromEntries(took) as Cost;
    },
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}

function sumOf(text: string, field: string): number {
  const found = text.matchAll(new RegExp(`"${field}":(\\d+)`, "g"));
  return [...found].reduce((sum, [, digits]) => sum + Number(digits), 0);
}

/** What each operation takes, asked of the service itself. */
async function measure(): Promise<[what: string, cost: Cost][]> {
  await using service = await startCounted();
  const { app, deps, advance, costOf } = service;
  const scripted = new ScriptedAgent("http://unused", "");
  const agent = scripted.status();
  const images = [deps.config.base_image];
  const leases: string[] = [];
  const ids: string[] = [];
  const costs: [string, Cost][] = [];
  const measured = async (what: string, count: number, work: () => Promise<unknown>) =>
    costs.push([what, await costOf(count, work)]);

  async function send(
    method: string,
    path: string,
    body?: object | string,
    headers: Record<string, string> = {},
  ): Promise<Record<string, unknown>> {
    const own = path.startsWith("/agent") ? { Authorization: `Bearer ${token}` } : {};
    const reply = await app.request(path, jsonRequest(method, body, { ...own, ...headers }));
    if (!reply.ok) throw new Error(`${method} ${path}: ${reply.status} ${await reply.text()}`);
    return (await reply.json()) as Record<string, unknown>;
  }
  const submit = async () => {
    const body = { code: "print(1)", input_data: { n: 1 } };
    ids.push((await send("POST", "/execute/async", body))["job_id"] as string);
  };
  const poll = async (freeSlots: number, waitS: number) => {
    const asked = scripted.pollRequest({ images, leases, free_slots: freeSlots, wait_s: waitS });
    const reply = (await send("POST", "/agent/v1/poll", asked)) as unknown as PollReply;
    leases.push(...reply.jobs.map(({ lease_id }) => lease_id));
    return reply;
  };
  const post = (lease: string, what: string, body: object, headers = {}) =>
    send("POST", `/agent/v1/leases/${lease}/${what}`, body, headers);
  const each = (what: string, work: (lease: string) => Promise<unknown>) => {
    const left = leases.values();
    return measured(what, times, () => work(left.next().value!));
  };
  const hash = await sha256(new TextEncoder().encode("kept"));

  await poll(0, 0);
  await submit();
  await measured("submission of an asynchronous job", 3 * times, submit);
  await measured("poll that brings a job", times, () => poll(1, 15));
  await each("report that the code has started, if it runs over 50 ms", (lease) =>
    post(lease, "started", { job_ref: null }),
  );
  const piece = { stream: "stdout", offset: 0, data_base64: btoa("so far\n") };
  await each("piece of a running job's output, at most one a second", (lease) =>
    post(lease, "logs", { parts: [piece] }),
  );
  await each("upload of an artifact", (lease) =>
    send("PUT", `/agent/v1/leases/${lease}/artifacts/a.txt`, "kept", {
      "Content-Length": "4",
      "X-Airlock-SHA256": hash,
    }),
  );
  await measured("status of a job", times, () => send("GET", `/jobs/${ids[0]}`));
  // Neighbours in the index, so that as many rows are read each time.
  const held = leases.toSorted().slice(0, 4);
  // Together shorter than a lease, which the others have too.
  await measured("renewal of 4 leases", 3, () => {
    advance(8000);
    return send("POST", "/agent/v1/renew", { ...agent, images, leases: held });
  });
  await each("result that brings the next job", (lease) =>
    post(lease, "result", success, { [takeHeader]: "1" }),
  );
  leases.splice(0);
  await poll(times, 0);
  await each("result", (lease) => post(lease, "result", success));
  leases.splice(0);

  await measured("client's request for a result", times, () =>
    send("GET", `/jobs/${ids[0]}/result?wait=true`),
  );
  await measured("second read of such a request, when its job has ended", times, () =>
    findExecution(deps.db, ids[0]!),
  );
  await poll(100, 0);
  for (const lease of leases.splice(0)) await post(lease, "result", success);
  await poll(1, 15);

  const { session_id } = await send("POST", "/sessions", {});
  scripted.maxSessions = 1;
  const heldSession = (await poll(0, 0)).sessions![0]!.lease_id;
  scripted.heldSessions.add(heldSession);
  await send("POST", `/agent/v1/sessions/${heldSession}/ready`, readyReport);
  await measured("call of a session", times, () =>
    send("POST", `/sessions/${session_id as string}/execute/async`, { code: "print(1)" }),
  );
  await measured("poll that brings a call", 1, () => poll(0, 15));
  await measured("result that brings the next call", times - 1, async () => {
    const result = post(leases.pop()!, "result", success, { [takeHeader]: "1" });
    const { jobs } = (await result) as unknown as ResultReply;
    leases.push(...jobs.map(({ lease_id }) => lease_id));
  });
  await post(leases.pop()!, "result", success);
  await app.request(`/sessions/${session_id as string}`, { method: "DELETE" });
  scripted.maxSessions = 0;

  await measured("poll of 15 s that brings nothing", times, () => poll(1, 15));
  const awaited = {
    agents: [agent.agent.id],
    executions: ids.slice(0, 4),
    outputs: [],
    builds: [],
    sessions: [],
  };
  await measured("read of an API process for others' news, while anyone waits", times, () =>
    readChanges(deps.db, awaited, deps.now()),
  );
  await measured(
    "the same with what is overdue, each second of an API process at rest",
    times,
    () => {
      const atRest = { ...awaited, executions: [] };
      return Promise.all([readChanges(deps.db, atRest, deps.now()), expire(deps)]);
    },
  );
  await measured("look for what is old, each minute of an API process", times, () =>
    removeOld(deps),
  );
  return costs;
}

const titles = [
  "operation",
  "calls",
  "statements",
  "writes",
  "rows read",
  "rows written",
  "wake-ups",
];

/** Two significant digits, or all digits before the point. */
function short(value: number): string {
  return value >= 100 ? value.toFixed() : String(Number(value.toPrecision(2)));
}

test("each operation costs the database what docs/scaling.md says (`-u` writes it there)", async () => {
  const lines = (await measure()).map(([what, cost]) => [what, ...Object.values(cost).map(short)]);
  const operations = markdownTable([titles, ...lines]);
  await expect(fillSections(readFileSync(page, "utf8"), { operations })).toMatchFileSnapshot(page);
});
