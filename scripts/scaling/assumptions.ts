/** What is taken as given. Check the limits before you rely on a result, and change them here. */
export type Assumption = { readonly value: number; readonly unit: string; readonly source: string };

export const assumptions = {
  objectLimit: {
    value: 1000,
    unit: "requests a second of one object",
    source: "Cloudflare's documentation of Durable Objects, Limits (a soft limit)",
  },
  databaseLimit: {
    value: 270,
    unit: "writes a second",
    source: "measured: single inserts into sqld on 2 cores, 20 clients at once; measure yours",
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
