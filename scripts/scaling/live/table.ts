import type { Table } from "../tables.ts";
import type { LiveCounts } from "./engine.ts";
import { type LiveCosts, type LiveOperation, liveOperations } from "./operations.ts";

/** What events and webhooks cost on each engine. */
export type LiveEngines = {
  readonly file: LiveCosts;
  readonly server: LiveCosts;
  readonly worker: LiveCosts;
};

export function liveTable({ file, server, worker }: LiveEngines): Table {
  const titles = [
    "operation",
    "file: calls",
    "writes",
    "rows written",
    "server: calls",
    "writes",
    "rows written",
    "Workers: calls",
    "writes",
    "rows written",
    "object requests",
    "alarms",
  ];
  const lines = (Object.entries(liveOperations) as [LiveOperation, string][]).map(
    ([name, what]) => {
      const { objectRequests, alarms } = worker[name];
      const numbers = [file, server, worker].flatMap((costs) => ofDatabase(costs[name]));
      return [what, ...[...numbers, objectRequests, alarms].map(short)];
    },
  );
  return [titles, ...lines];
}

const ofDatabase = ({ calls, writes, rowsWritten }: LiveCounts) => [calls, writes, rowsWritten];

/** One digit after the point. */
const short = (value: number): string => String(Number(value.toFixed(1)));
