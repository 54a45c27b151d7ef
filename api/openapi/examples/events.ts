import { z } from "@hono/zod-openapi";
import type { JobEvent } from "../../../shared/wire/client/events.ts";
import { formatCursor, newCursor } from "../../domain/event-cursor.ts";
import { contentTypes, encodeEvent, type EventFormat } from "../../events/encode.ts";
import { at, jobId, record } from "./jobs.ts";

export const eventsDescription =
  "Everything that happens to a job, as Server-Sent Events, or with `Accept: application/x-ndjson` as lines `{id, event, data}`; an empty line means nothing. It works for queued, running and ended jobs alike. After a break, `Last-Event-ID` or `after` with the last id continues without loss or repeat. The server may end the answer before `end`: ask again. `data` always has `job_id`, `attempt` and `at`. The events: `status` (`queued` with `reason` and `position`, `running` with `agent`), `stdout` and `stderr` (`text`; all texts joined are the record's stream), `display` (what the code showed), `tool_call` (the code has called one of the `tools`, and waits for its answer), `held` (the rest of `stream` comes when the code has ended), `truncated` (the middle of `stream` was left out), `retry` (the attempt was lost; output starts from zero), and one `end` (the record without its streams; an output above 256 KiB is left out, and `output_url` leads to it). Ignore events that you do not know.";

const running = { ...newCursor(1), state: "running" } as const;
const of = (time: string) => ({ job_id: jobId, attempt: 1, at: time });
const { stdout: _stdout, stderr: _stderr, ...bare } = record;

const events: JobEvent[] = [
  {
    event: "status",
    id: formatCursor(running),
    data: { ...of(at("00.004")), status: "running", agent: "host-1" },
  },
  {
    event: "stdout",
    id: formatCursor({ ...running, stdout: 17 }),
    data: { ...of(at("00.030")), text: "adding 3 numbers\n" },
  },
  {
    event: "end",
    id: formatCursor({ ...running, state: "ended", stdout: 17 }),
    data: { ...of(at("00.034")), ...bare },
  },
];

const shown = (format: EventFormat): string =>
  events.map((event) => new TextDecoder().decode(encodeEvent(format, event))).join("");

export const serverSentEvents = shown("sse");
export const eventLines = shown("lines");

/** The description of an answer that may come as events instead. */
export const asEvents = {
  [contentTypes.sse]: { schema: z.string(), example: serverSentEvents },
} as const;
