import type { CallToolResult } from "@modelcontextprotocol/server";
import { z } from "zod";
import { readStatus, waitForRecord } from "../api.ts";
import type { Call } from "./call.ts";
import { startReporting } from "./progress.ts";
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
  const { api, signal } = call;
  const stopReporting = startReporting(call, id);
  try {
    const record = await waitForRecord(api, id, waitS, signal);
    return record
      ? await endedResult(api, record)
      : await unfinishedResult(api, await readStatus(api, id));
  } finally {
    stopReporting();
  }
}
