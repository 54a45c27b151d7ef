import { connect } from "node:net";
import { request } from "undici";
import { expect } from "vitest";
import { eventData, type JobEvent } from "../../shared/wire/executions.ts";

type Headers = Record<string, string>;

/** A client that follows a job; it takes one event after the other. */
export class Follower implements AsyncDisposable {
  readonly status: number;
  readonly headers: Record<string, string | string[] | undefined>;
  /** Everything that it has received. */
  readonly seen: JobEvent[] = [];
  readonly #events: AsyncGenerator<JobEvent>;
  readonly #stop: AbortController;

  private constructor(
    answer: Awaited<ReturnType<typeof request>>,
    parse: (text: AsyncIterable<string>) => AsyncGenerator<JobEvent>,
    stop: AbortController,
  ) {
    this.status = answer.statusCode;
    this.headers = answer.headers;
    answer.body.setEncoding("utf8");
    this.#events = parse(answer.body);
    this.#stop = stop;
  }

  /** Follows by Server-Sent Events, or by lines if `headers` accept them. */
  static async open(
    url: string,
    path: string,
    headers: Headers = {},
    body?: object,
  ): Promise<Follower> {
    const stop = new AbortController();
    const answer = await request(url + path, {
      method: body ? "POST" : "GET",
      headers: {
        "Accept-Encoding": "identity",
        Accept: "text/event-stream",
        ...(body && { "Content-Type": "application/json" }),
        ...headers,
      },
      ...(body && { body: JSON.stringify(body) }),
      signal: stop.signal,
      reset: true,
      bodyTimeout: 0,
    });
    const isLines = String(answer.headers["content-type"]).startsWith("application/x-ndjson");
    return new Follower(answer, isLines ? lineEvents : serverSentEvents, stop);
  }

  /** The next event; undefined at the end of the stream. */
  async next(): Promise<JobEvent | undefined> {
    const step = await this.#events.next();
    const event = step.done === true ? undefined : step.value;
    if (event) {
      expect(eventData[event.event].safeParse(event.data).error).toBeUndefined();
      this.seen.push(event);
    }
    return event;
  }

  /** Takes events until one matches, and returns that one. */
  async until(isWanted: (event: JobEvent) => boolean): Promise<JobEvent> {
    for (;;) {
      const event = await this.next();
      if (!event) throw new Error(`the stream ended after ${JSON.stringify(this.seen)}`);
      if (isWanted(event)) return event;
    }
  }

  /** Everything up to the end of the stream. */
  async rest(): Promise<JobEvent[]> {
    while (await this.next());
    return this.seen;
  }

  /** Hangs up. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#events.return(undefined).catch(() => {});
  }
}

async function* blocks(text: AsyncIterable<string>, end: string): AsyncGenerator<string> {
  let waiting = "";
  for await (const piece of text) {
    const parts = (waiting + piece).split(end);
    waiting = parts.pop() ?? "";
    yield* parts;
  }
  expect(waiting).toBe("");
}

async function* serverSentEvents(text: AsyncIterable<string>): AsyncGenerator<JobEvent> {
  for await (const block of blocks(text, "\n\n")) {
    const fields = Object.fromEntries(
      block.split("\n").map((line) => {
        const colon = line.indexOf(":");
        return [line.slice(0, colon), line.slice(colon + 2)];
      }),
    );
    if (fields["event"] === undefined) continue;
    const { id, event, data } = fields;
    const parsed = { event, data: JSON.parse(data ?? "") as unknown };
    yield { ...(id !== undefined && { id }), ...parsed } as JobEvent;
  }
}

async function* lineEvents(text: AsyncIterable<string>): AsyncGenerator<JobEvent> {
  for await (const line of blocks(text, "\n")) {
    if (line !== "") yield JSON.parse(line) as JobEvent;
  }
}

/** The joined text of a stream since the last `retry`. */
export function textOf(events: JobEvent[], stream: "stdout" | "stderr"): string {
  const last = events.slice(events.findLastIndex(({ event }) => event === "retry") + 1);
  return last.map((e) => (e.event === stream ? e.data.text : "")).join("");
}

/**
 * Sends bytes that need not be HTTP, and returns everything received until the server closes.
 * With `hangUp` the client ends its side at once; it must do so if the bytes are no complete request.
 */
export function sendRaw(url: string, bytes: string | Uint8Array, hangUp = false): Promise<string> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname);
    let answer = "";
    socket.setTimeout(60_000, () => socket.destroy(new Error(`no end, after ${answer}`)));
    socket.on("data", (part: Buffer) => (answer += part.toString("latin1")));
    socket.on("close", () => resolve(answer));
    socket.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code !== "ECONNRESET" && error.code !== "EPIPE") reject(error);
    });
    if (hangUp) socket.end(bytes);
    else socket.write(bytes);
  });
}

/** The status of a raw HTTP answer; undefined if there was none. */
export function statusOf(answer: string): number | undefined {
  const status = /^HTTP\/1\.1 (\d{3}) /.exec(answer)?.[1];
  return status === undefined ? undefined : Number(status);
}
