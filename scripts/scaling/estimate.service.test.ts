import { expect, test } from "vitest";
import { bottleneck, flow, rates } from "./estimate.ts";
import type { Costs } from "./operations.ts";

const none = { calls: 0, writes: 0, rowsRead: 0, rowsWritten: 0, wakes: 0 };
const one = { calls: 2, writes: 1, rowsRead: 10, rowsWritten: 4, wakes: 1 };
const costs = { submit: one, look: none, idlePoll: { ...one, wakes: 0 } } as Costs;

test("a flow is the sum of its operations; a second look is not a request", () => {
  expect(flow(costs, { submit: 10, look: 20, idlePoll: 5 })).toEqual({
    calls: 30,
    writes: 15,
    rowsRead: 150,
    rowsWritten: 60,
    wakes: 10,
    requests: 15,
  });
});

test("each job is submitted, ended and fetched once, each poll either brings something or not", () => {
  const simulated = {
    utilization: 0.5,
    wait: { mean: 0, p50: 0, p99: 0 },
    pollsPerS: 12,
    claimsPerS: 8,
    emptyPollsPerS: 2,
    withResult: 0.25,
  };
  const often = rates(simulated, { agents: 80, jobsPerS: 8 });
  expect(often).toMatchObject({ submit: 8, result: 6, resultAndTake: 2, claim: 10, idlePoll: 2 });
  expect(often.renew).toBe(10);
});

test("twice as many writes at the bottleneck halve the jobs per second", () => {
  const flowOf = (writes: number, wakes: number) => ({ ...none, requests: 1, writes, wakes });
  const at = (writes: number, wakes: number) =>
    bottleneck("worker", flowOf(writes, wakes), 10, 1100);
  expect(at(20, 1).jobsPerS * 2).toBe(at(10, 1).jobsPerS);
  expect(at(20, 1).what).toContain("writer");
  expect(at(1, 40).what).toContain("Durable Object");
  expect(bottleneck("file", flowOf(20, 1), 10, 1100).jobsPerS).toBe(1100);
});
