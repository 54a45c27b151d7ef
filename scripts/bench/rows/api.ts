import { setTimeout as sleep } from "node:timers/promises";
import { ScriptedAgent, success } from "../../../api/testing/scripted-agent.ts";
import type { PollReply } from "../../../shared/wire/agent/lease.ts";
import { type ApiService, startApi } from "../api-service.ts";
import { timed } from "../interleave.ts";
import type { Row, Series } from "../row.ts";

const SUBMITTERS = 64;
const CLIENTS = 32;
const AGENTS = 4;
const SLOTS = 16;
const BATCH = 1000;
/** Pause of the other client between two of its requests. */
const OTHERS_PAUSE_MS = 2;
const hello = { code: 'print("hello")' };

/** Each on an API of its own; the worst stall is of each. */
const parts = [measureJobs, measureSubmits, measureBatches];

export const api: Row = {
  name: "api",
  what: `the API alone, durable: ${CLIENTS} clients and ${AGENTS} agents of ${SLOTS} slots without an engine that submit, lease and end jobs; submits over ${SUBMITTERS} connections; batches of ${BATCH.toLocaleString("en")} jobs while another client reads`,
  goal: "≥ 1,000 jobs/s; ≥ 2,500 submits/s, p99 ≤ 60 ms; ≥ 8,000 jobs/s in batches, no other request over 50 ms; no stall over 50 ms",
  measure: async ({ quick }) => {
    const series: Series[] = [];
    const stalls: number[] = [];
    for (const part of parts) {
      await using service = await startApi();
      series.push(...(await part(service, quick)));
      stalls.push(await service.worstStallMs());
    }
    return [...series, { name: "worst stall", unit: "ms", samples: stalls }];
  },
  reaches: (of) =>
    of("jobs").p50 >= 1000 &&
    of("submits").p50 >= 2500 &&
    of("latency").p99 <= 60 &&
    of("batched").p50 >= 8000 &&
    of("worst stall").max <= 50 &&
    Object.keys(paths).every((name) => of(name).max <= 50),
};

/** Rate of each round and CPU time of each of its tasks, after one round that is not counted. */
async function rounds(api: ApiService, count: number, most: number, run: () => Promise<unknown>) {
  const [rates, cpu]: [number[], number[]] = [[], []];
  await run();
  await api.worstStallMs();
  for (let round = 0; round < most; round++) {
    const cpuBefore = api.cpuMs();
    rates.push((count / (await timed(run))) * 1000);
    cpu.push((api.cpuMs() - cpuBefore) / count);
  }
  return { rates, cpu };
}

async function measureJobs(api: ApiService, quick: boolean): Promise<Series[]> {
  const count = quick ? 64 : 4000;
  const { rates, cpu } = await rounds(api, count, quick ? 1 : 4, () => runJobs(api, count));
  return [
    { name: "jobs", unit: "/s", samples: rates },
    { name: "CPU of each job", unit: "ms", samples: cpu },
  ];
}

/** Submits jobs and ends all of them. */
async function runJobs(api: ApiService, count: number): Promise<void> {
  let [toSubmit, toFinish] = [count, count];
  const client = async (): Promise<void> => {
    while (toSubmit-- > 0) await api.send("POST", "/execute/async", hello);
  };
  const agent = async (): Promise<void> => {
    const asked = { slots: SLOTS, free_slots: SLOTS, wait_s: 0.1 };
    const poll = new ScriptedAgent(api.url, "").pollRequest(asked);
    while (toFinish > 0) {
      const { text } = await api.send("POST", "/agent/v1/poll", poll);
      const { jobs } = JSON.parse(text) as PollReply;
      toFinish -= jobs.length;
      const finish = ({ lease_id }: { lease_id: string }) =>
        api.send("POST", `/agent/v1/leases/${lease_id}/result`, success);
      await Promise.all(jobs.map(finish));
    }
  };
  await Promise.all([
    ...Array.from({ length: CLIENTS }, client),
    ...Array.from({ length: AGENTS }, agent),
  ]);
}

async function measureSubmits(api: ApiService, quick: boolean): Promise<Series[]> {
  const count = quick ? SUBMITTERS : 4000;
  const latencies: number[] = [];
  const { rates, cpu } = await rounds(api, count, quick ? 1 : 5, async () => {
    let left = count;
    const client = async (): Promise<void> => {
      while (left-- > 0) {
        const job = { ...hello, input_data: { n: left } };
        latencies.push(await timed(() => api.send("POST", "/execute/async", job, left)));
      }
    };
    await Promise.all(Array.from({ length: SUBMITTERS }, client));
  });
  return [
    { name: "submits", unit: "/s", samples: rates },
    { name: "latency", unit: "ms", samples: latencies.slice(count) },
    { name: "CPU of each submit", unit: "ms", samples: cpu },
  ];
}

async function measureBatches(api: ApiService, quick: boolean): Promise<Series[]> {
  const count = quick ? 1 : 12;
  for (let n = 0; n < count; n++) await submitBatch(api, n);
  const rates: number[] = [];
  await api.worstStallMs();
  const others = startOthers(api);
  for (let n = 0; n < count; n++) {
    rates.push((BATCH / (await timed(() => submitBatch(api, n)))) * 1000);
  }
  const series = await others.stop();
  return [
    { name: "batched jobs", unit: "/s", samples: rates },
    ...Object.entries(series).map(([name, samples]) => ({ name, unit: "ms" as const, samples })),
  ];
}

async function submitBatch(api: ApiService, batch: number): Promise<void> {
  const jobs = Array.from({ length: BATCH }, (_, n) => ({
    ...hello,
    input_data: { n: batch * BATCH + n },
  }));
  const { text } = await api.send("POST", "/execute/batch", { jobs }, 1);
  const answer = JSON.parse(text) as { jobs: { job_id?: string }[] };
  if (answer.jobs.length !== BATCH || !answer.jobs.every(({ job_id }) => job_id)) {
    throw new Error(`not all jobs of a batch were accepted: ${text.slice(0, 500)}`);
  }
}

const paths = {
  "another's GET /health": () => "/health",
  "another's GET /jobs/{id}": (id: string) => `/jobs/${id}`,
};

/** Another client, which reads in turns until it is stopped. */
function startOthers(api: ApiService): { stop: () => Promise<Record<string, number[]>> } {
  const stopping = new AbortController();
  const series = Object.fromEntries(Object.keys(paths).map((name) => [name, [] as number[]]));
  const read = async (): Promise<void> => {
    const { text } = await api.send("POST", "/execute/async", { code: "pass" });
    const { job_id } = JSON.parse(text) as { job_id: string };
    while (!stopping.signal.aborted) {
      for (const [name, path] of Object.entries(paths)) {
        series[name]?.push(await timed(() => api.send("GET", path(job_id))));
        await sleep(OTHERS_PAUSE_MS);
      }
    }
  };
  const reading = read();
  // `stop` throws its error.
  reading.catch(() => {});
  return {
    stop: async () => {
      stopping.abort();
      await reading;
      return series;
    },
  };
}
