import { z } from "zod";
import { type EventData, eventData, type EventName } from "../../../shared/wire/client/events.ts";
import { readLines } from "../../typescript/src/transport/read-lines.ts";
import { asThere, type Call, problemOf, Refusal } from "../facade.ts";

export type CallEvent = { [E in EventName]: { event: E; data: EventData<E> } }[EventName];

/** The service sends something more often than this. */
const silenceMs = 60_000;

/** Runs a call of a session. @throws Refusal with the service's status and words. */
export async function run(
  { api }: Pick<Call, "api">,
  session: string,
  fields: object,
  signal: AbortSignal,
): Promise<AsyncGenerator<CallEvent, void>> {
  const answer = await api(`/sessions/${session}/execute`, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
    body: JSON.stringify(fields),
    signal,
  });
  if (!answer.ok) throw new Refusal(answer.status, problemOf(await answer.text()).detail);
  return readEvents(answer.body!);
}

/** Why the events of a call stopped before its end. */
export function reasonOfCut(error: unknown): string {
  return error instanceof Refusal ? error.message : "The connection to the service was lost.";
}

/**
 * The events of a body of Server-Sent Events. Unknown ones are left out.
 *
 * @throws Refusal if the body ends before the call: its key was revoked, or the service stops.
 */
export async function* readEvents(
  body: ReadableStream<Uint8Array>,
): AsyncGenerator<CallEvent, void> {
  let name = "";
  for await (const line of readLines(body, silenceMs)) {
    const [, field, value] = /^(event|data): ([^]*)$/.exec(line) ?? [];
    if (field === "event") name = value ?? "";
    if (field !== "data" || !Object.hasOwn(eventData, name)) continue;
    const event = name as EventName;
    const schema: z.ZodType = eventData[event];
    const data = schema.parse(JSON.parse(value ?? "")) as object;
    yield { event, data: event === "end" ? asThere(data) : data } as CallEvent;
    if (event === "end") return;
  }
  throw new Refusal(503, "The service ended the stream before the call had ended.");
}
