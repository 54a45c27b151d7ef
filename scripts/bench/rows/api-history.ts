import { FakeAgent } from "../api/fake-agent.ts";
import { type ApiService, startApi } from "../api/service.ts";
import type { Row, Series } from "../row.ts";
import { CLIENTS, submitAll } from "./api-submits.ts";

const FEW = 1000;
const MANY = 1_000_000;

/** What is claimed waits by turns of all clients, in places of three priorities. */
const jobTypes = { default: {}, early: { priority: 5 }, late: { priority: -5 } };

const lists = {
  "list of all": "/executions",
  "list by status": "/executions?status=succeeded&view=full",
  "list by job type": "/executions?job_type=default",
};

export const apiHistory: Row = {
  name: "api-history",
  what: `claim by turns and places, and list, with ${MANY.toLocaleString("en")} finished executions, as ratios of the CPU time with ${FEW.toLocaleString("en")}; and the API's memory`,
  goal: "≤ 1.3 ×, ≤ 200 MB, no stall over 50 ms",
  measure: async ({ quick, samples }) => {
    await using few = await startApi(FEW, jobTypes);
    await using many = await startApi(quick ? 2 * FEW : MANY, jobTypes);
    const ratios = new Map<string, number[]>();
    for (const api of [few, many]) await costs(api, quick);
    await many.worstStallMs();
    for (let round = 0; round < samples(5); round++) {
      const [small, large] = [await costs(few, quick), await costs(many, quick)];
      for (const [name, cost] of Object.entries(large)) {
        ratios.set(name, [...(ratios.get(name) ?? []), cost / (small[name] ?? 0)]);
      }
    }
    const series = [...ratios].map(([name, all]): Series => ({ name, unit: "×", samples: all }));
    return [
      ...series,
      { name: "memory", unit: "MB", samples: [many.memory().peak] },
      { name: "worst stall", unit: "ms", samples: [await many.worstStallMs()] },
    ];
  },
  reaches: (of) =>
    ["claim", ...Object.keys(lists)].every((name) => of(name).p50 <= 1.3) &&
    of("memory").max <= 200 &&
    of("worst stall").max <= 50,
};

/** CPU time of one of each, in ms. */
async function costs(api: ApiService, quick: boolean): Promise<Record<string, number>> {
  const claims = quick ? 20 : 300;
  const agent = new FakeAgent(api, 1);
  await submitAll(api, claims, Object.keys(jobTypes));
  const leases: string[] = [];
  const result: Record<string, number> = {
    claim: await cpuOf(api, claims, async () => leases.push(...(await agent.poll(0)))),
  };
  await Promise.all(leases.map((lease) => agent.finish(lease)));
  for (const [name, path] of Object.entries(lists)) {
    result[name] = await cpuOf(api, quick ? 10 : 100, () => api.send("GET", path));
  }
  await Promise.all(Array.from({ length: CLIENTS }, () => api.send("GET", "/executions?limit=50")));
  return result;
}

async function cpuOf(api: ApiService, times: number, task: () => Promise<unknown>) {
  const before = api.cpuMs();
  for (let i = 0; i < times; i++) await task();
  return (api.cpuMs() - before) / times;
}
