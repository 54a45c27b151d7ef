import { type Dispatcher, request } from "undici";
import type { JobEvent } from "../../../shared/wire/client/events.ts";

type Options = {
  readonly dispatcher: Dispatcher;
  readonly headers?: Record<string, string>;
  /** Its abort closes the connection. */
  readonly signal?: AbortSignal;
};

/** The events of a job as they come. Throws Error if the answer is not a stream. */
export async function* watch(
  url: string,
  jobId: string,
  { dispatcher, headers = {}, signal }: Options,
): AsyncGenerator<JobEvent> {
  const { statusCode, body } = await request(`${url}/jobs/${jobId}/events`, {
    dispatcher,
    headers: { accept: "text/event-stream", "accept-encoding": "identity", ...headers },
    bodyTimeout: 0,
    ...(signal && { signal }),
  });
  body.setEncoding("utf8");
  if (statusCode !== 200) throw new Error(`events: ${statusCode} ${await body.text()}`);
  let waiting = "";
  for await (const piece of body as AsyncIterable<string>) {
    const blocks = (waiting + piece).split("\n\n");
    waiting = blocks.pop() ?? "";
    for (const block of blocks) {
      const [, event] = /^event: (.*)$/m.exec(block) ?? [];
      const [, data] = /^data: (.*)$/m.exec(block) ?? [];
      if (event && data) yield { event, data: JSON.parse(data) as unknown } as JobEvent;
    }
  }
}
