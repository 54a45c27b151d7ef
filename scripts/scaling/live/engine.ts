import { setTimeout as sleep } from "node:timers/promises";
import type { Config } from "../../../shared/config/config.ts";
import type { DatabaseCounts } from "../../bench/metered-sqld.ts";

export type LiveCounts = DatabaseCounts & {
  readonly objectRequests: number;
  readonly alarms: number;
};

/** A service whose database and Durable Objects are counted. */
export type LiveEngine = AsyncDisposable & {
  readonly fetch: (path: string, init?: RequestInit) => Promise<Response>;
  readonly counts: () => Promise<LiveCounts>;
  /** Resolves when it does nothing more of its own until time passes. */
  readonly settled: () => Promise<void>;
  readonly pass: (ms: number) => Promise<void>;
  /** What it does in a minute without clients and agents, as far as webhooks have a part in it. */
  readonly idleMinute: () => Promise<void>;
};

export const token = "a-token-of-16-characters";

/** Nobody counts requests, and an agent that says nothing lives on. */
export const settings = {
  api_rate_limit_enabled: false,
  agent_tokens: [token],
  liveness_s: 3600,
  lease_ttl_s: 3600,
} satisfies Partial<Config>;

/** Resolves when the database was asked nothing for so long. */
export async function untilQuiet(
  { counts, pending }: { counts: () => DatabaseCounts; pending: () => number },
  quietMs: number,
): Promise<void> {
  for (let before = -1; pending() > 0 || counts().calls !== before;) {
    before = counts().calls;
    await sleep(quietMs);
  }
}
