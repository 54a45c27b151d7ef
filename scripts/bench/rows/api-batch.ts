import { setTimeout as sleep } from "node:timers/promises";
import { timed } from "../interleave.ts";
import { type ApiService, startApi } from "../api/service.ts";
import type { Row } from "../row.ts";

const SIZE = 1000;
/** Pause of the other client between two of its requests. */
const OTHERS_PAUSE_MS = 2;

export const apiBatch: Row = {
  name: "api-batch",
  what: `the API alone: durable POST /execute/batch of ${SIZE.toLocaleString("en")} jobs, one after the other, while another client reads`,
  goal: "≥ 8,000 jobs/s, no stall over 50 ms, no other request over 50 ms",
  measure: async ({ quick }) => {
    await using api = await startApi(0);
    const count = quick ? 1 : 12;
    for (let n = 0; n < count; n++) await submit(api, n);
    const rates: number[] = [];
    await api.worstStallMs();
    const others = startOthers(api);
    for (let n = 0; n < count; n++) {
      rates.push((SIZE / (await timed(() => submit(api, n)))) * 1000);
    }
    const series = await others.stop();
    return [
      { name: "jobs", unit: "/s", samples: rates },
      ...Object.entries(series).map(([name, samples]) => ({ name, unit: "ms" as const, samples })),
      { name: "worst stall", unit: "ms", samples: [await api.worstStallMs()] },
    ];
  },
  reaches: (of) =>
    of("jobs").p50 >= 8000 &&
    of("worst stall").max <= 50 &&
    Object.keys(paths).every((name) => of(name).max <= 50),
};

async function submit(api: ApiService, batch: number): Promise<void> {
  const jobs = Array.from({ length: SIZE }, (_, n) => ({
    code: 'print("hello")',
    input_data: { n: batch * SIZE + n },
  }));
  const { text } = await api.send("POST", "/execute/batch", { jobs }, 1);
  const answer = JSON.parse(text) as { jobs: { job_id?: string }[] };
  if (answer.jobs.length !== SIZE || !answer.jobs.every(({ job_id }) => job_id)) {
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
