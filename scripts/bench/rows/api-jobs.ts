import { FakeAgent } from "../api/fake-agent.ts";
import { type ApiService, startApi } from "../api/service.ts";
import type { Row } from "../row.ts";

const AGENTS = 4;
const SLOTS = 16;
const CLIENTS = 32;

export const apiJobs: Row = {
  name: "api-jobs",
  what: `the API alone: submit, lease, result; ${CLIENTS} clients and ${AGENTS} agents of ${SLOTS} slots without an engine`,
  goal: "≥ 1,000 jobs/s, no stall over 50 ms",
  measure: async ({ quick }) => {
    await using api = await startApi(0);
    const count = quick ? 64 : 4000;
    await runJobs(api, count);
    const [rates, cpu]: [number[], number[]] = [[], []];
    await api.worstStallMs();
    for (let round = 0; round < (quick ? 1 : 4); round++) {
      const cpuBefore = api.cpuMs();
      const from = performance.now();
      await runJobs(api, count);
      rates.push((count / (performance.now() - from)) * 1000);
      cpu.push((api.cpuMs() - cpuBefore) / count);
    }
    return [
      { name: "jobs", unit: "/s", samples: rates },
      { name: "CPU of each", unit: "ms", samples: cpu },
      { name: "worst stall", unit: "ms", samples: [await api.worstStallMs()] },
    ];
  },
  reaches: (of) => of("jobs").p50 >= 1000 && of("worst stall").max <= 50,
};

/** Submits jobs and ends all of them. */
async function runJobs(api: ApiService, count: number): Promise<void> {
  let [toSubmit, toFinish] = [count, count];
  const client = async (): Promise<void> => {
    while (toSubmit-- > 0) await api.send("POST", "/execute/async", { code: 'print("hello")' });
  };
  const agent = async (): Promise<void> => {
    const fake = new FakeAgent(api, SLOTS);
    while (toFinish > 0) {
      const leases = await fake.poll(0.1);
      toFinish -= leases.length;
      await Promise.all(leases.map((lease) => fake.finish(lease)));
    }
  };
  await Promise.all([
    ...Array.from({ length: CLIENTS }, client),
    ...Array.from({ length: AGENTS }, agent),
  ]);
}
