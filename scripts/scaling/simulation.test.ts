import { expect, test } from "vitest";
import { simulate, type Setting } from "./simulation.ts";

const setting: Setting = {
  agents: 2,
  slots: 4,
  jobsPerS: 7,
  jobS: 1,
  pollWaitS: 15,
  roundTripS: 0,
  lengthS: 30_000,
  seed: 7,
};

/** Mean wait of M/M/c by Erlang's C formula. */
function erlangWait({ agents, slots, jobsPerS, jobS }: Setting): number {
  const [servers, load] = [agents * slots, jobsPerS * jobS];
  let blocked = 1;
  for (let n = 1; n <= servers; n++) blocked = (load * blocked) / (n + load * blocked);
  const waits = blocked / (1 - (load / servers) * (1 - blocked));
  return (waits * jobS) / (servers - load);
}

test.each([
  ["7 of 8 slots in use", {}],
  ["half of the slots in use", { jobsPerS: 4 }],
  ["one slot", { agents: 1, slots: 1, jobsPerS: 0.7 }],
  ["many agents of one slot", { agents: 30, slots: 1, jobsPerS: 27 }],
])("without network delay it is M/M/c: %s", (_, changes) => {
  const given = { ...setting, ...changes };
  const { wait, utilization } = simulate(given);
  const { agents, slots, jobsPerS, jobS } = given;
  expect(utilization).toBeCloseTo((jobsPerS * jobS) / (agents * slots), 1);
  expect(wait.mean / erlangWait(given)).toBeGreaterThan(0.9);
  expect(wait.mean / erlangWait(given)).toBeLessThan(1.1);
});

test("without jobs each agent polls once per polling time", () => {
  const idle = simulate({ ...setting, agents: 100, jobsPerS: 0, lengthS: 1400 });
  expect(idle.pollsPerS).toBeCloseTo(100 / 15, 1);
  expect(idle.emptyPollsPerS).toBeCloseTo(100 / 15, 1);
  expect(idle.wait.mean).toBe(0);
});

test("a short simulation is like a long one: it does not start with a queue", () => {
  const given = { ...setting, agents: 100, jobsPerS: 320, lengthS: 140 };
  expect(simulate(given).wait.p99).toBeLessThan(10 * setting.jobS * 0.05);
});

test("network delay is added, and under load results bring the jobs", () => {
  const near = simulate({ ...setting, jobsPerS: 1, roundTripS: 0.1 });
  expect(near.wait.p50).toBeCloseTo(0.05, 2);
  expect(near.withResult).toBeLessThan(0.1);
  const full = simulate({ ...setting, jobsPerS: 7.8, lengthS: 5000 });
  expect(full.withResult).toBeGreaterThan(0.6);
});
