import { channel } from "node:diagnostics_channel";

/**
 * `acquired`: the job has its container. `started`: its code has started. `ended`: all output and
 * files are back.
 */
export type RunStep = "acquired" | "started" | "ended";

const steps = channel("airlock:run");

/** Publishes on the channel `airlock:run`, for the bench; costs nothing without subscribers. */
export function markStep(step: RunStep): void {
  steps.publish(step);
}
