import { SubmittedJob } from "../../../shared/wire/client/submission.ts";
import { ExecutionRecord, SyncResult } from "../../../shared/wire/execution.ts";
import { asEvents } from "../examples/events.ts";
import { record, submittedJob, syncResult } from "../examples/jobs.ts";
import { json } from "./bodies.ts";
import { tooManyStreams } from "./problems.ts";

/** Descriptions that all requests that run code share. */

/** A request that waits for the end. */
export function runAnswers(ended: string) {
  const answer = json(SyncResult, ended, { example: syncResult });
  return {
    200: { ...answer, content: { ...answer.content, ...asEvents } },
    429: tooManyStreams,
  };
}

/** A request that is answered once it is stored. */
export function queuedAnswers(ended: string, queued: string) {
  const shown = { example: record };
  return {
    200: json(
      ExecutionRecord,
      `With \`Prefer: wait=N\`: ${ended}`,
      shown,
      "Location",
      "Preference-Applied",
    ),
    202: json(SubmittedJob, queued, { example: submittedJob }, "Location"),
  };
}
