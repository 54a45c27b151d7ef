import type { CallToolResult } from "@modelcontextprotocol/server";
import { z } from "zod";
import type { Call } from "./call.ts";
import { startReporting } from "./progress.ts";
import { readStatus, waitForRecord } from "./requests.ts";
import { endedResult, unfinishedResult } from "./result.ts";

/** Clients give up after 60 s; the rest is for the way. */
export const WaitSeconds = z
  .int()
  .min(0)
  .max(50)
  .default(45)
  .describe("Seconds to wait for the end. A job that takes longer goes on.");

/** Waits for a job's end, at most `waitS`, and reports progress meanwhile. */
export async function follow(call: Call, id: string, waitS: number): Promise<CallToolResult> {
  const { airlock, signal } = call;
  const stopReporting = startReporting(call, id);
  try {
    const record = await waitForRecord(airlock, id, waitS, signal);
    return record
      ? await endedResult(airlock, record)
      : await unfinishedResult(airlock, await readStatus(airlock, id));
  } finally {
    stopReporting();
  }
}
