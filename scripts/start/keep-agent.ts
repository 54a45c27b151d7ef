import { setTimeout as sleep } from "node:timers/promises";
import { say } from "../command/say.ts";
import type { Child } from "./child.ts";

export type AgentKeeper = Pick<Child, "ready" | "stop" | "hurry">;

const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 30_000;
/** After an agent has run this long, the next wait is short again. */
const HEALTHY_MS = 60_000;

/**
 * Keeps one agent running: restarts it when it ends, after growing waits. The first start is not
 * repeated.
 */
export function keepAgent(start: () => Child): AgentKeeper {
  const stopping = new AbortController();
  let agent = start();
  const { ready } = agent;

  const keep = async (): Promise<void> => {
    await ready;
    for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS)) {
      const since = performance.now();
      const code = await agent.ended;
      if (stopping.signal.aborted) return;
      if (performance.now() - since > HEALTHY_MS) waitMs = FIRST_WAIT_MS;
      say(`the agent ended (exit code ${code}), starting it again in ${waitMs / 1000} s`);
      await sleep(waitMs, undefined, { signal: stopping.signal });
      agent = start();
    }
  };
  keep().catch(() => {});

  return {
    ready,
    stop: async (graceMs) => {
      stopping.abort();
      await agent.stop(graceMs);
    },
    hurry: () => agent.hurry(),
  };
}
