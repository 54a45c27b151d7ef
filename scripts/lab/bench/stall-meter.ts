import { monitorEventLoopDelay } from "node:perf_hooks";

/** Loaded into the API by the bench: answers each message with the longest stall since the last, in ms. */
const RESOLUTION_MS = 1;
const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
delay.enable();
process.on("message", () => {
  process.send?.(Math.max(0, delay.max / 1e6 - RESOLUTION_MS));
  delay.reset();
});
// The API's own channel to whoever started it must not keep it alive for this.
process.channel?.unref();
