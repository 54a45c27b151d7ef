/**
 * What is taken as given. Nothing here is measured by `npm run scaling`: check prices and limits before you rely
 * on a sum, and change them here.
 */
export type Assumption = { readonly value: number; readonly unit: string; readonly source: string };

const asOf = "list price as of November 2026, to be checked";
const cloudflare = (page: string) => `Cloudflare's pricing of ${page}, ${asOf}`;
const turso = `Turso's plan Scaler, ${asOf}`;

export const assumptions = {
  machine: {
    value: 24,
    unit: "$ a month",
    source: "a virtual machine of 2 cores and 4 GB, a guess",
  },
  workerRequests: { value: 0.3, unit: "$ per million beyond 10", source: cloudflare("Workers") },
  workerCpu: { value: 0.02, unit: "$ per million ms beyond 30", source: cloudflare("Workers") },
  workerCpuMs: {
    value: 3,
    unit: "ms of CPU a request",
    source: "a guess: the dashboard tells yours",
  },
  workerPlan: { value: 5, unit: "$ a month", source: cloudflare("Workers") },
  objectRequests: {
    value: 0.15,
    unit: "$ per million beyond 1",
    source: cloudflare("Durable Objects"),
  },
  rowsRead: { value: 0.8, unit: "$ per billion beyond 100", source: turso },
  rowsWritten: { value: 0.8, unit: "$ per million beyond 100", source: turso },
  databasePlan: { value: 24.92, unit: "$ a month", source: turso },
  bucketWrites: { value: 4.5, unit: "$ per million beyond 1", source: cloudflare("R2") },
  objectLimit: {
    value: 1000,
    unit: "requests a second of one object",
    source: "Cloudflare's limits",
  },
  databaseLimit: {
    value: 270,
    unit: "writes a second",
    source: "single inserts into sqld on 2 cores, 20 clients at once; measure yours",
  },
} as const satisfies Record<string, Assumption>;

/** The load that is worked out: short jobs, on agents of the default size, near the API. */
export const workload = {
  slots: 4,
  jobS: 0.32,
  roundTripS: 0.005,
  pollWaitS: 15,
  renewEveryS: 8,
  /** Of the jobs, those that leave an artifact. */
  artifacts: 0.1,
} as const;
