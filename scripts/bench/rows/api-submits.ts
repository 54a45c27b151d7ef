import { type ApiService, startApi } from "../api/service.ts";
import type { Row } from "../row.ts";

export const CLIENTS = 64;

export const apiSubmits: Row = {
  name: "api-submits",
  what: `the API alone: durable POST /execute/async over ${CLIENTS} connections`,
  goal: "≥ 2,500/s, p99 ≤ 60 ms",
  measure: async ({ quick }) => {
    await using api = await startApi(0);
    await submitAll(api, quick ? CLIENTS : 5000);
    const rounds = Array.from({ length: quick ? 1 : 5 }, () => (quick ? CLIENTS : 4000));
    const [rates, latencies, cpu]: [number[], number[], number[]] = [[], [], []];
    await api.worstStallMs();
    for (const count of rounds) {
      const cpuBefore = api.cpuMs();
      const from = performance.now();
      latencies.push(...(await submitAll(api, count)));
      rates.push((count / (performance.now() - from)) * 1000);
      cpu.push((api.cpuMs() - cpuBefore) / count);
    }
    return [
      { name: "submits", unit: "/s", samples: rates },
      { name: "latency", unit: "ms", samples: latencies },
      { name: "CPU of each", unit: "ms", samples: cpu },
      { name: "worst stall", unit: "ms", samples: [await api.worstStallMs()] },
    ];
  },
  reaches: (of) => of("submits").p50 >= 2500 && of("latency").p99 <= 60,
};

/** Submits `count` jobs of these types by all clients; the time of each in ms. */
export async function submitAll(
  api: ApiService,
  count: number,
  jobTypes = ["default"],
): Promise<number[]> {
  let left = count;
  const times: number[] = [];
  const client = async (): Promise<void> => {
    while (left-- > 0) {
      const from = performance.now();
      const job_type = jobTypes[left % jobTypes.length];
      const job = { code: 'print("hello")', input_data: { n: left }, job_type };
      await api.send("POST", "/execute/async", job, left);
      times.push(performance.now() - from);
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
  return times;
}
