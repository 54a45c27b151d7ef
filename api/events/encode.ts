import { writeJson } from "../../shared/json.ts";
import type { JobEvent } from "../../shared/wire/client/events.ts";

export type EventFormat = "sse" | "lines";

export const contentTypes = {
  sse: "text/event-stream",
  lines: "application/x-ndjson",
} as const satisfies Record<EventFormat, string>;

/** The media type that a client prefers; Server-Sent Events unless it asks for lines. */
export function formatOf(accept: string | undefined): EventFormat {
  const types = (accept ?? "").split(",").map((type) => type.split(";")[0]?.trim().toLowerCase());
  const lines = types.indexOf(contentTypes.lines);
  const sse = types.indexOf(contentTypes.sse);
  return lines !== -1 && (sse === -1 || lines < sse) ? "lines" : "sse";
}

/** Whether a client of an endpoint that usually answers with JSON wants events instead. */
export function wantsEvents(accept: string | undefined): boolean {
  return accept?.toLowerCase().includes(contentTypes.sse) ?? false;
}

/** An event as bytes. "idle" becomes a line that clients ignore. */
export function encodeEvent(format: EventFormat, event: JobEvent | "idle"): Uint8Array {
  return utf8.encode(format === "sse" ? asServerSent(event) : asLine(event));
}

const utf8 = new TextEncoder();

function asServerSent(event: JobEvent | "idle"): string {
  if (event === "idle") return ":\n\n";
  const id = event.id === undefined ? "" : `id: ${event.id}\n`;
  return `${id}event: ${event.event}\ndata: ${writeJson(event.data)}\n\n`;
}

function asLine(event: JobEvent | "idle"): string {
  if (event === "idle") return "\n";
  const { id, event: name, data } = event;
  return `${writeJson({ ...(id !== undefined && { id }), event: name, data })}\n`;
}
