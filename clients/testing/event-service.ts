import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { listen } from "../../shared/testing/listen.ts";

type Event = { id?: string; event: string; data: Record<string, unknown> };

export interface EventService extends AsyncDisposable {
  readonly url: string;
  readonly events: readonly Event[];
  /** How many times it was asked. */
  readonly asked: () => number;
}

/**
 * What a job's events look like on the wire, cheaper than a real job at each point of a break.
 *
 * @param perAnswer After so many events an answer ends, as it may before `end`.
 */
export async function startEventService(perAnswer = Infinity): Promise<EventService> {
  const events = eventsOfJob();
  let asked = 0;
  function answer(request: IncomingMessage, response: ServerResponse): void {
    asked++;
    const { searchParams } = new URL(request.url!, "http://x");
    const after = searchParams.get("after");
    const from = after === null ? 0 : events.findIndex(({ id }) => id === after) + 1;
    if (from === events.length) return void response.writeHead(204).end();
    response.writeHead(200, { "Content-Type": "application/x-ndjson" });
    for (const event of events.slice(from, from + perAnswer)) {
      response.write(`${JSON.stringify(event)}\n\n`);
    }
    response.end();
  }
  return { ...(await listen(createServer(answer))), events, asked: () => asked };
}

function eventsOfJob(): Event[] {
  const common = { job_id: "j", attempt: 1, at: "2026-11-22T00:00:00.000Z" };
  const texts = ["one\n", "zwei – ü\n", "three\n", "4\n"];
  return [
    { event: "status", data: { ...common, status: "queued" } },
    { id: "c/0+", event: "status", data: { ...common, status: "running" } },
    ...texts.map((text, n) => ({
      id: `c/${n + 1}+`,
      event: n === 2 ? "stderr" : "stdout",
      data: { ...common, text },
    })),
    { id: "c/end", event: "end", data: { ...common, execution_id: "j", status: "succeeded" } },
  ];
}
