// Loaded into the API by the bench.
import { writeFileSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { tellStatements } from "../../../api/testing/tell-statements.ts";

const RESOLUTION_MS = 1;

/** Answers each message with the longest stall since the last, in ms. */
function tellStalls(): void {
  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  delay.enable();
  process.on("message", () => {
    process.send?.(Math.max(0, delay.max / 1e6 - RESOLUTION_MS));
    delay.reset();
  });
  // The API's own channel to whoever started it must not keep it alive for this.
  process.channel?.unref();
}

/** Keeps the number of statements that the API has run in a file. */
function countStatements(file: string): void {
  let count = 0;
  let told = 0;
  tellStatements(() => (count += 1));
  setInterval(() => {
    if (count !== told) writeFileSync(file, String(count));
    told = count;
  }, 50).unref();
}

const file = process.env["BENCH_STATEMENTS"];
if (file === undefined) tellStalls();
else if (process.argv.some((word) => word.endsWith("api/node.ts"))) countStatements(file);
