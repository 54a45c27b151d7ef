import type { Deps } from "../deps.ts";

/** Polls look for jobs every few seconds anyway, so a timer for a later job need not survive a restart. */
const longestTimerMs = 10_000;

/** Wakes an agent when a job may start. */
export function notifyAt(
  { notifier, now }: Pick<Deps, "notifier" | "now">,
  availableAt: number,
): void {
  const delayMs = availableAt - now();
  if (delayMs <= longestTimerMs) notifier.notify("job", Math.max(0, delayMs));
}
