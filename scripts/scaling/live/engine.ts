import { setTimeout as sleep } from "node:timers/promises";
import type { Config } from "../../../shared/config/config.ts";
import type { DatabaseCounts } from "../../bench/services/metered-sqld.ts";

export type LiveCounts = DatabaseCounts & {
  readonly objectRequests: number;
  readonly alarms: number;
};

/** A service whose database and Durable Objects are counted. */
export type LiveEngine = AsyncDisposable & {
  readonly fetch: (path: string, init?: RequestInit) => Promise<Response>;
  readonly counts: () => Promise<LiveCounts>;
  /** Resolves when the service has nothing more to do before time passes. */
  readonly settled: () => Promise<void>;
  readonly pass: (ms: number) => Promise<void>;
  /** Lets a minute pass without clients and agents: only what webhooks need is done. */
  readonly idleMinute: () => Promise<void>;
};

export const token = "a-token-of-16-characters";

/** Requests are not counted by a rate limit, and a silent agent does not count as dead. */
export const settings = {
  api_rate_limit_enabled: false,
  agent_tokens: [token],
  liveness_s: 3600,
  lease_ttl_s: 3600,
} satisfies Partial<Config>;

/** Resolves when the database has had no call for `quietMs`. */
export async function untilQuiet(
  { counts, pending }: { counts: () => DatabaseCounts; pending: () => number },
  quietMs: number,
): Promise<void> {
  for (let before = -1; pending() > 0 || counts().calls !== before;) {
    before = counts().calls;
    await sleep(quietMs);
  }
}
