import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ScriptedAgent, success } from "../../../api/testing/scripted-agent.ts";
import type { PoolStats } from "../../../shared/wire/health.ts";
import type { LeasedJob, PollReply } from "../../../shared/wire/leases.ts";
import { rate, type Row, type Series, timed } from "./measure.ts";
import { type ApiService, helloJob, startApi } from "./world.ts";

const SIZES = [1, 200, 1000];
const CLIENTS = 64;
const SLOTS = 4;
const POLL_S = 25;
/** Two kinds of hosts have no GPU; half of all have fetched the new image. */
const KINDS = [{ zone: "a" }, { zone: "b" }, { zone: "b", gpu: "a100" }];
const IMAGE = "airlock/new:2";
const JOB_TYPES = {
  new: { base_image: IMAGE },
  gpu: { labels: { gpu: "a100" }, gpus: 1 },
};
const BASE = "airlock/python:3.13";

export const fleet: Row = {
  name: "fleet",
  what: `the API alone with ${SIZES.join(", ")} agents that poll with ${SLOTS} free slots: three kinds of labels, a job type for GPUs, an image that half of the hosts lack; at rest, hello one by one, ${CLIENTS} at once, and until all agents are back after a restart`,
  goal: "1,000 agents: at rest ≤ 15 % of a core, hello ≤ 1.5 × and rate ≥ 0.8 × that with one agent, back within 30 s, no poll refused",
  measure: async ({ quick }) => {
    const series: Series[] = [];
    for (const size of SIZES) {
      const measured = await measureFleet(quick ? Math.min(size, 20) : size, quick);
      series.push(...measured.map((one) => ({ ...one, name: `${size} agents: ${one.name}` })));
    }
    return series;
  },
  reaches: (of) =>
    of("1000 agents: at rest").p50 <= 15 &&
    of("1000 agents: hello").p50 <= 1.5 * of("1 agents: hello").p50 &&
    of("1000 agents: at once").p50 >= 0.8 * of("1 agents: at once").p50 &&
    of("1000 agents: back").p50 <= 30_000 &&
    of("1000 agents: refused").p50 === 0,
};

async function measureFleet(size: number, quick: boolean): Promise<Series[]> {
  const folder = mkdtempSync(join(tmpdir(), "airlock-bench-"));
  const start = (): Promise<ApiService> =>
    startApi(
      {
        AIRLOCK_DATABASE_URL: `file:${join(folder, "airlock.db")}`,
        AIRLOCK_JOB_TYPES: JSON.stringify(JOB_TYPES),
        AIRLOCK_BASE_IMAGE: BASE,
      },
      size + CLIENTS,
    );
  let api = await start();
  const hosts = Array.from({ length: size }, (_, n) => startHost(() => api, n));
  try {
    await untilHeardOf(api, size, 0);
    const hello = async (): Promise<void> => void (await api.send("POST", "/execute", helloJob));
    for (let n = 0; n < (quick ? 4 : 100); n++) await hello();

    await sleep(quick ? 100 : 5_000);
    const restMs = quick ? 500 : 15_000;
    const beforeRest = api.cpuMs();
    await sleep(restMs);
    const atRest = ((api.cpuMs() - beforeRest) / restMs) * 100;

    const latencies: number[] = [];
    const count = quick ? 8 : 100;
    const beforeHellos = api.cpuMs();
    const tookMs = await timed(async () => {
      for (let n = 0; n < count; n++) latencies.push(await timed(hello));
    });
    const cpu = api.cpuMs() - beforeHellos - (atRest * tookMs) / 100;
    const span = { leadInMs: quick ? 0 : 2_000, forMs: quick ? 500 : 5_000 };
    const rates = [await rate(CLIENTS, span, hello), await rate(CLIENTS, span, hello)];

    await api[Symbol.asyncDispose]();
    const stoppedAt = Date.now();
    api = await start();
    const backMs = await timed(() => untilHeardOf(api, size, stoppedAt));
    const refused = hosts.reduce((sum, host) => sum + host.refused(), 0);
    return [
      { name: "at rest, % of a core", unit: "each", samples: [atRest] },
      { name: "hello, one by one", unit: "ms", samples: latencies },
      { name: "hello's CPU", unit: "ms", samples: [cpu / count] },
      { name: `at once (${CLIENTS})`, unit: "/s", samples: rates },
      { name: "back after a restart", unit: "ms", samples: [backMs] },
      { name: "refused polls", unit: "each", samples: [refused] },
    ];
  } finally {
    for (const host of hosts) host.stop();
    await api[Symbol.asyncDispose]();
    await Promise.all(hosts.map(({ ended }) => ended));
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Waits until so many agents have polled since a time (epoch ms). */
async function untilHeardOf(api: ApiService, count: number, since: number): Promise<void> {
  for (;;) {
    const { text } = await api.send("GET", "/pool/stats");
    const { agents } = JSON.parse(text) as PoolStats;
    if (agents.filter(({ last_seen }) => Date.parse(last_seen) > since).length === count) return;
    await sleep(200);
  }
}

/** An agent without an engine, which ends each job at once. While the API is away it tries again each second. */
function startHost(api: () => ApiService, n: number) {
  const labels = KINDS[n % KINDS.length]!;
  const gpus = "gpu" in labels ? 1 : 0;
  const images = n % 2 === 0 ? [BASE, IMAGE] : [BASE];
  const agent = new ScriptedAgent();
  const { agent: own, ...asked } = agent.pollRequest({ wait_s: POLL_S, images });
  const request = {
    ...asked,
    agent: { ...own, name: `host-${n}`, labels },
    gpus: { total: gpus, free: gpus },
  };
  const running = new Set<Promise<void>>();
  let refused = 0;
  const stopping = new AbortController();

  const post = async (path: string, body: object): Promise<string> => {
    for (;;) {
      try {
        return (await api().send("POST", `/agent/v1${path}`, body)).text;
      } catch (error) {
        if (stopping.signal.aborted) throw error;
        // Without an answer, the API is being started again.
        if (/: [45]\d\d /.test(String(error))) refused += 1;
        await sleep(1000);
      }
    }
  };
  const end = async ({ lease_id }: LeasedJob): Promise<void> => {
    await post(`/leases/${lease_id}/result`, success);
  };
  const poll = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      const free_slots = SLOTS - running.size;
      const { jobs } = JSON.parse(await post("/poll", { ...request, free_slots })) as PollReply;
      for (const job of jobs) {
        const ending = end(job)
          .catch(() => {})
          .finally(() => running.delete(ending));
        running.add(ending);
      }
      if (running.size === SLOTS) await Promise.race(running);
    }
  };
  const ended = poll().catch(() => {});
  return { ended, refused: () => refused, stop: () => stopping.abort() };
}
