import { setTimeout as sleep } from "node:timers/promises";
import { type Agent, request } from "undici";
import type { Engine } from "../../../agent/engine/engine.ts";
import { labels } from "../../../agent/sandbox/labels.ts";
import type { SyncResult } from "../../../shared/wire/execution.ts";

/** A running service with one agent, as a row uses it. */
export type Client = {
  /** Runs code by POST /execute. Throws Error unless it succeeded. */
  readonly execute: (code: string, more?: object) => Promise<SyncResult>;
  /** Runs hello so often, a few at once, so that both processes have compiled what they run. */
  readonly warmUp: (times: number, more?: object) => Promise<void>;
  /** Waits until the pool has been filled again, and until nothing has changed for a while. */
  readonly settled: () => Promise<void>;
};

const WARM_UP_AT_ONCE = 4;
const LOOK_MS = 25;
/** Longer than a refill waits before it begins. */
const QUIET_MS = 200;
const SETTLE_LIMIT_MS = 20_000;

/** @param agentName What the containers of the agent are labelled with. */
export function clientOf(url: string, engine: Engine, agentName: string, http: Agent): Client {
  /** The containers of the agent, by id and state. */
  const containers = async (): Promise<string> => {
    const found = await engine.list(labels.agentName, agentName, AbortSignal.timeout(10_000));
    const states = found.map(({ id, isRunning }) => `${id} ${isRunning ? "running" : "other"}`);
    return states.sort().join("\n");
  };

  const execute: Client["execute"] = async (code, more = {}) => {
    const answer = await request(`${url}/execute`, {
      dispatcher: http,
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ code, ...more }),
    });
    const result = (await answer.body.json()) as SyncResult;
    if (!result.success) throw new Error(`a job failed: ${JSON.stringify(result)}`);
    return result;
  };

  return {
    execute,
    warmUp: async (times, more) => {
      const left = Array.from({ length: times }).values();
      const work = async (): Promise<void> => {
        for (const _ of left) await execute("print('hello')", more);
      };
      await Promise.all(Array.from({ length: WARM_UP_AT_ONCE }, work));
    },
    settled: async () => {
      const limit = performance.now() + SETTLE_LIMIT_MS;
      let before = await containers();
      for (let quietSince = performance.now(); performance.now() < quietSince + QUIET_MS;) {
        if (performance.now() > limit) throw new Error(`the pool never came to rest:\n${before}`);
        await sleep(LOOK_MS);
        const now = await containers();
        if (now !== before || now.includes("other")) quietSince = performance.now();
        before = now;
      }
    },
  };
}
