import { assumptions, workload } from "./assumptions.ts";
import { bottleneck, type EngineName, engines, flow, rates } from "./estimate.ts";
import { type Costs, type Operation, operations } from "./operations.ts";
import { simulate, type Simulated } from "./simulation.ts";

/** Titles, then lines. */
export type Table = readonly string[][];

const agentCounts = [10, 100, 1000];
const loads = [10, 100, 1000, 10_000];
/** Beyond this share of the slots the queue grows faster than anybody waits for. */
const mostUtilization = 0.9;

type Case = { readonly agents: number; readonly jobsPerS: number; readonly simulated: Simulated };

/** A service of so many agents under so many jobs; undefined where those cannot run them. */
function caseOf(agents: number, jobsPerS: number): Case | undefined {
  const { jobS, slots, roundTripS, pollWaitS } = workload;
  if ((jobsPerS * jobS) / (agents * slots) > mostUtilization) return undefined;
  // As many jobs as make the figures steady, and some rounds of polls.
  const lengthS = Math.max(5 * pollWaitS, Math.min(300, 20_000 / jobsPerS));
  const setting = { agents, slots, jobsPerS, jobS, pollWaitS, roundTripS, lengthS, seed: 1 };
  return { agents, jobsPerS, simulated: simulate(setting) };
}

export function operationTable(costs: Costs): Table {
  const lines = (Object.entries(operations) as [Operation, string][]).map(([name, what]) => {
    const { calls, writes, rowsRead, rowsWritten, wakes } = costs[name];
    return [what, ...[calls, writes, rowsRead, rowsWritten, wakes].map(short)];
  });
  const titles = [
    "operation",
    "calls",
    "writes among them",
    "rows read",
    "rows written",
    "wake-ups",
  ];
  return [titles, ...lines];
}

export type Estimates = { readonly load: Table; readonly limits: Table };

/** @param processJobsPerS Of one API process over a file, as `npm run bench` measured it. */
export function estimateTables(costs: Costs, processJobsPerS: number): Estimates {
  const cases = agentCounts.flatMap((agents) =>
    loads.map((jobsPerS) => ({ agents, jobsPerS, case: caseOf(agents, jobsPerS) })),
  );
  const load = cases.map(({ agents, jobsPerS, case: found }) => {
    if (!found)
      return [
        short(agents),
        short(jobsPerS),
        "more than they can run",
        ...Array.from({ length: 6 }, () => ""),
      ];
    const { simulated } = found;
    const { requests, calls, writes } = flow(costs, rates(simulated, found));
    const { wait, utilization, pollsPerS } = simulated;
    return [
      ...[agents, jobsPerS].map(short),
      `${Math.round(utilization * 100)} %`,
      ...[wait.p50 * 1000, wait.p99 * 1000, pollsPerS, requests, calls, writes].map(short),
    ];
  });

  const names = Object.keys(engines) as EngineName[];
  const typical = cases.find((one) => one.agents === 100 && one.jobsPerS === 100)!.case!;
  const taken = flow(costs, rates(typical.simulated, typical));
  const limits = names.map((name) => {
    const { jobsPerS, what } = bottleneck(name, taken, typical.jobsPerS, processJobsPerS);
    const ofEach = [taken.writes, taken.rowsWritten, taken.wakes].map((n) =>
      short(n / typical.jobsPerS),
    );
    return [engines[name], what, short(jobsPerS), ...(name === "file" ? ["", "", ""] : ofEach)];
  });
  return {
    load: [
      [
        "agents",
        "jobs/s",
        "slots in use",
        "wait p50, ms",
        "p99, ms",
        "polls/s",
        "requests/s",
        "database calls/s",
        "writes among them/s",
      ],
      ...load,
    ],
    limits: [
      [
        "engine",
        "first bottleneck",
        "jobs/s",
        "writes a job",
        "rows written a job",
        "wake-ups a job",
      ],
      ...limits,
    ],
  };
}

export function assumptionTable(): Table {
  const lines = Object.entries(assumptions).map(([name, { value, unit, source }]) => [
    name,
    `${value} ${unit}`,
    source,
  ]);
  const asked = Object.entries(workload).map(([name, value]) => [name, String(value), "the load"]);
  return [["name", "value", "where it is from"], ...lines, ...asked];
}

/** Two digits that count, or all before the point. */
function short(value: number): string {
  if (value >= 100) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(2)));
}
