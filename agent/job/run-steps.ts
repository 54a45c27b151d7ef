import { channel } from "node:diagnostics_channel";

/** The container is there; its code has begun; all that there is of it has come back. */
export type RunStep = "acquired" | "started" | "ended";

const steps = channel("airlock:run");

/** Tells whoever subscribes to the channel `airlock:run`, such as the bench; for nobody it is free. */
export function markStep(step: RunStep): void {
  steps.publish(step);
}
