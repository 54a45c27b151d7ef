import type { CallToolResult } from "@modelcontextprotocol/server";
import { z } from "zod";
import { readOutput, readStatus, waitForRecord } from "./api.ts";
import type { Call } from "./call.ts";
import { endedResult, unfinishedResult } from "./result.ts";

/** Clients give up after 60 s; the rest is for the way. */
export const WaitSeconds = z
  .int()
  .min(0)
  .max(50)
  .default(45)
  .describe("Seconds to wait for the end. A job that takes longer goes on.");

/** Seconds between two reports of a client that asked for progress. */
const reportEveryS = 2;
/** Characters of the newest output in a report. */
const newestLength = 500;

/** Waits for a job's end, at most `waitS`, and reports progress meanwhile. */
export async function follow(call: Call, id: string, waitS: number): Promise<CallToolResult> {
  const { api, signal, report } = call;
  const startedAt = Date.now();
  for (;;) {
    const passedS = (Date.now() - startedAt) / 1000;
    const leftS = Math.max(0, Math.ceil(waitS - passedS));
    const record = await waitForRecord(
      api,
      id,
      report ? Math.min(leftS, reportEveryS) : leftS,
      signal,
    );
    if (record) return endedResult(api, record);
    const status = await readStatus(api, id);
    if (signal.aborted || Date.now() - startedAt >= waitS * 1000) {
      return unfinishedResult(api, status);
    }
    if (!report) continue;
    const newest = (await readOutput(api, id, "stdout")).slice(-newestLength);
    const message = `Job ${id}: ${status.message ?? status.status}\n${newest}`;
    await report((Date.now() - startedAt) / 1000, message.toWellFormed());
  }
}
