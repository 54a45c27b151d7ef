import { assumptions as given, workload } from "./assumptions.ts";
import type { Cost } from "./metered-service.ts";
import type { Costs, Operation } from "./operations.ts";
import type { Simulated } from "./simulation.ts";

export const engines = {
  file: "Node, database file",
  server: "Node, libSQL server",
  worker: "Workers, Turso",
} as const;
export type EngineName = keyof typeof engines;

/** What a second of a service takes. */
export type Flow = Cost & { readonly requests: number };

/** How often each operation happens in a second. */
export function rates(
  { pollsPerS, claimsPerS, emptyPollsPerS, withResult }: Simulated,
  { agents, jobsPerS }: { agents: number; jobsPerS: number },
): Partial<Record<Operation, number>> {
  return {
    submit: jobsPerS,
    // Restarted polls look once, as those that bring something do.
    claim: pollsPerS - emptyPollsPerS,
    idlePoll: emptyPollsPerS,
    started: jobsPerS * Math.exp(-0.05 / workload.jobS),
    artifact: jobsPerS * workload.artifacts,
    result: jobsPerS * (1 - withResult),
    resultAndTake: jobsPerS * withResult,
    wait: jobsPerS,
    look: jobsPerS,
    renew: Math.min(agents / workload.renewEveryS, claimsPerS + jobsPerS),
  };
}

export function flow(costs: Costs, often: Partial<Record<Operation, number>>): Flow {
  const sum = { calls: 0, writes: 0, rowsRead: 0, rowsWritten: 0, wakes: 0, requests: 0 };
  for (const [operation, perS] of Object.entries(often) as [Operation, number][]) {
    const cost = costs[operation];
    for (const name of Object.keys(cost) as (keyof Cost)[]) sum[name] += perS * cost[name];
    if (operation !== "look") sum.requests += perS;
  }
  return sum;
}

/** Jobs a second at which each engine comes to its first bottleneck, and what that is. */
export function bottleneck(
  engine: EngineName,
  { writes, wakes }: Flow,
  jobsPerS: number,
  processJobsPerS: number,
): { readonly jobsPerS: number; readonly what: string } {
  const byWrites = (given.databaseLimit.value / writes) * jobsPerS;
  const byObject = (given.objectLimit.value / wakes) * jobsPerS;
  if (engine === "file") return { jobsPerS: processJobsPerS, what: "the one process's thread" };
  if (engine === "server" || byWrites < byObject) {
    return { jobsPerS: byWrites, what: "the one writer of the database" };
  }
  return { jobsPerS: byObject, what: "the Durable Object of the wake-ups" };
}
