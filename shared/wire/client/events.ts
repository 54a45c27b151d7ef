import { z } from "zod";
import { ExecutionRecord, JobId } from "../execution.ts";
import { ResultItem } from "../result-item.ts";
import { streamNames } from "../output.ts";
import { Timestamp } from "../timestamp.ts";
import { ToolCall } from "../tool-call.ts";

/** The events of a job: GET /jobs/{id}/events. Clients ignore events that they do not know. */

const common = z.object({
  job_id: JobId,
  attempt: z.int().meta({ description: "Which try of the job; 0 until the first has begun." }),
  at: Timestamp,
});
const ofStream = common.extend({ stream: z.enum(streamNames) });

export const QueuedEvent = common.extend({
  status: z.literal("queued"),
  reason: z.string().meta({ description: "Why the job waits." }),
  position: z.int().meta({ description: "Its place in the queue; 1 is next." }),
});
export const RunningEvent = common.extend({
  status: z.literal("running"),
  agent: z.string().nullable().meta({ description: "Name of the agent that runs it." }),
});
export const TextEvent = common.extend({ text: z.string() });
export const HeldEvent = ofStream.extend({
  offset: z.int().meta({ description: "Bytes of the stream that are sent while the code runs." }),
});

export const DisplayEvent = common.extend(ResultItem.shape);
/** Only while the call waits for its answer: who gets it should answer it. */
export const ToolCallEvent = common.extend(ToolCall.shape);

/** The record without its streams and results. A large output is left out; `output_url` leads to it. */
export const EndEvent = z.object({
  ...common.shape,
  ...ExecutionRecord.omit({ stdout: true, stderr: true, results: true }).shape,
  output_url: z.string().optional(),
});

/** Data of each event, by its name. The name `progress` is reserved. */
export const eventData = {
  status: z.union([QueuedEvent, RunningEvent]),
  stdout: TextEvent,
  stderr: TextEvent,
  display: DisplayEvent,
  tool_call: ToolCallEvent,
  held: HeldEvent,
  truncated: ofStream,
  retry: common,
  end: EndEvent,
} as const;
export type EventName = keyof typeof eventData;

export type EventData<E extends EventName> = z.infer<(typeof eventData)[E]>;

/** An event; `status` of a queued job has no id. */
export type JobEvent = {
  [E in EventName]: { event: E; id?: string; data: EventData<E> };
}[EventName];

/** Largest output, as bytes of JSON, that the `end` event brings. */
export const endOutputMaxBytes = 256 * 1024;
