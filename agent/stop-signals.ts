import type { EventEmitter } from "node:events";
import type { AgentSignals } from "./agent.ts";
import type { Clock } from "./waiting/clock.ts";

/** Under npm one Ctrl-C arrives twice, from the terminal and from npm: both count as one. */
const SAME_PRESS_MS = 1000;

/**
 * SIGTERM, SIGINT or the end of the parent process: take no more work. A second signal: end now.
 */
export function listenForStop(
  process: EventEmitter,
  { nowMs }: Pick<Clock, "nowMs">,
): AgentSignals {
  const stop = new AbortController();
  const abort = new AbortController();
  let first: { readonly name: string; readonly atMs: number } | undefined;

  const onSignal = (name: string): void => {
    const isEcho = name === first?.name && nowMs() - first.atMs < SAME_PRESS_MS;
    if (first && !isEcho) abort.abort();
    first ??= { name, atMs: nowMs() };
    stop.abort();
  };
  process.on("SIGTERM", onSignal).on("SIGINT", onSignal);
  process.once("disconnect", () => stop.abort());
  return { stop: stop.signal, abort: abort.signal };
}
