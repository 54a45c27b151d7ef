import { createRoute, type OpenAPIHono, z } from "@hono/zod-openapi";
import { takeBytes } from "../../shared/turns.ts";
import { type JobEvent, type StreamName, streamNames } from "../../shared/wire/executions.ts";
import type { ClientDeps, Deps, RouteDeps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { sendStored } from "../http/answer.ts";
import type { AppEnv } from "../http/context.ts";
import { eventLines, eventsDescription, serverSentEvents } from "../http/examples.ts";
import {
  headers,
  integerQuery,
  jobIdParam,
  problem,
  problemRef,
  tooManyStreams,
} from "../http/responses.ts";
import { outputEnds, resultLengths } from "../jobs/output.ts";
import { requireExecution } from "../jobs/read.ts";
import type { ExecutionRow } from "../jobs/sql.ts";
import { isStoreOutage } from "../store/database.ts";
import {
  contentTypes,
  encodeAs,
  type EventCursor,
  type EventFormat,
  follow,
  formatOf,
  parseCursor,
  resultOutput,
  storedOutput,
  textBytes,
} from "./follow.ts";

const text = z.string();

export function eventRoutes(app: OpenAPIHono<AppEnv>, deps: RouteDeps, streams: OpenStreams): void {
  const events = createRoute({
    method: "get",
    path: "/jobs/{id}/events",
    operationId: "followJob",
    summary: "Follow a job",
    description: eventsDescription,
    request: {
      params: jobIdParam,
      query: z.object({
        after: z
          .string()
          .optional()
          .openapi({ description: "The id of the last event that the client has." }),
      }),
      headers: z.object({
        "Last-Event-ID": z
          .string()
          .optional()
          .openapi({ description: "The same, as EventSource sends it; it comes before `after`." }),
      }),
    },
    responses: {
      200: {
        description: "The events, up to `end`.",
        headers: headers("X-Accel-Buffering"),
        content: {
          [contentTypes.sse]: { schema: text, example: serverSentEvents },
          [contentTypes.lines]: { schema: text, example: eventLines },
        },
      },
      204: { description: "The client has the `end`: there is nothing more." },
      400: problem("invalid_request", badCursor("after", "x")),
      429: tooManyStreams,
    },
  });
  app.openapi(events, async (c) => {
    const { id } = c.req.valid("param");
    const from = cursorOf(c.req.header("Last-Event-ID"), c.req.valid("query").after);
    const client = c.get("client");
    await requireExecution(client, id);
    if (from?.state === "ended") return c.body(null, 204);
    const format = formatOf(c.req.header("Accept"));
    if (c.req.method === "HEAD") return c.body(null, 200, eventHeaders(format));
    const signals = [c.req.raw.signal, deps.streamsEnd];
    const end = streams.begin(c.get("caller")?.keyId);
    const events = (stop: AbortSignal) => endingWith(follow(client, id, from, stop), end);
    const body = eventStream(deps, encodeAs(format), events, signals);
    return c.body(body, 200, eventHeaders(format));
  });

  const logs = createRoute({
    method: "get",
    path: "/jobs/{id}/logs",
    operationId: "getJobLogs",
    summary: "Raw output of a job",
    description:
      "The bytes of one stream that the job has written so far, from `offset` on, as they are. `X-Next-Offset` is the offset to ask for next. If the job is tried again, its output starts from zero. A range counts from `offset`.",
    request: {
      params: jobIdParam,
      query: z.object({
        stream: z.enum(streamNames).default("stdout"),
        offset: integerQuery(
          { minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 },
          "Bytes to leave out first.",
        ),
      }),
      headers: z.object({
        Range: z.string().optional().openapi({ description: "Such as `bytes=0-1023`." }),
      }),
    },
    responses: {
      200: {
        description: "The bytes from `offset` on; none if there are no more yet.",
        headers: headers("X-Next-Offset", "Accept-Ranges"),
        content: { "application/octet-stream": { schema: text.openapi({ format: "binary" }) } },
      },
      206: {
        description: "The part that `Range` asked for.",
        headers: headers("X-Next-Offset", "Accept-Ranges", "Content-Range"),
        content: { "application/octet-stream": { schema: text.openapi({ format: "binary" }) } },
      },
      416: problemRef("range_not_satisfiable"),
    },
  });
  app.openapi(logs, async (c) => {
    const { id } = c.req.valid("param");
    const { stream, offset } = c.req.valid("query");
    const client = c.get("client");
    const execution = await requireExecution(client, id);
    const { size, open } = await readLog(client, execution, stream);
    if (offset > size) {
      const more = { "Content-Range": `bytes */${size}` };
      const detail = `${stream} of job ${id} has ${size} bytes.`;
      throw new AppError("range_not_satisfiable", detail, { job_id: id }, more);
    }
    const answer = await sendStored(c, {
      name: `${stream} of job ${id} from ${offset} on`,
      size: size - offset,
      etag: `"${execution.attempt}-${size}"`,
      headers: {
        "Content-Type": "application/octet-stream",
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-store, no-transform",
      },
      open: async (range) => open(offset + (range?.offset ?? 0), range?.length ?? size - offset),
    });
    const sent = Number(answer.headers.get("Content-Length"));
    const begin = /^bytes (\d+)/.exec(answer.headers.get("Content-Range") ?? "")?.[1] ?? 0;
    answer.headers.set("X-Next-Offset", String(offset + Number(begin) + sent));
    return answer;
  });
}

/** The header takes precedence: a browser that reconnects sends it with the original URL. */
function cursorOf(header: string | undefined, after: string | undefined): EventCursor | undefined {
  const [path, given] = header ? ["Last-Event-ID", header] : ["after", after];
  if (!given) return undefined;
  const cursor = parseCursor(given);
  if (cursor) return cursor;
  const { detail, errors } = badCursor(path, given);
  throw new AppError("invalid_request", detail, { errors });
}

function badCursor(path: string, given: string) {
  const message = "must be the id of an event of this job, as it was sent";
  return {
    detail: `${path} ${message}; ${JSON.stringify(given.slice(0, 40))} is none.`,
    errors: [{ path, message }],
  };
}

type Events = AsyncGenerator<JobEvent | "idle">;

/**
 * Events as the body of an answer, or as they are for a facade. The next event is made when the client has taken the one
 * before it, so that a slow client holds no more than that one. When the client hangs up or a signal aborts, the events
 * are ended; the process stays open until they are.
 */
export function eventStream<Encoded>(
  { waitUntil, log }: Pick<Deps, "waitUntil" | "log">,
  encode: (event: JobEvent | "idle") => Encoded,
  follow: (signal: AbortSignal) => Events,
  signals: AbortSignal[],
  kind?: "synchronous",
): ReadableStream<Encoded> {
  const hungUp = new AbortController();
  const events = follow(hungUp.signal);
  let finish: (() => void) | undefined;
  /** A stream that nobody reads, such as the answer to HEAD, must not keep the process open. */
  const begin = (): void => {
    if (!finish) waitUntil(new Promise<void>((resolve) => (finish = resolve)), kind);
  };
  /** A signal of the process outlives the stream, and would keep it in memory. */
  const finished = (): void => {
    finish?.();
    for (const signal of signals) signal.removeEventListener("abort", hangUp);
  };
  const end = async (): Promise<void> => {
    // A generator that has not started would skip its `finally`.
    if (!finish) await events.next().catch(() => {});
    begin();
    await events.return(undefined).catch(() => {});
    finished();
  };
  const hangUp = (): void => hungUp.abort();
  hungUp.signal.addEventListener("abort", () => void end());
  for (const signal of signals) signal.addEventListener("abort", hangUp);
  // The client may have gone while its job was stored.
  if (signals.some(({ aborted }) => aborted)) hangUp();

  return new ReadableStream<Encoded>(
    {
      async pull(controller) {
        // Before `begin`: `end` starts a generator that has not begun, so that its `finally` runs if the client goes here.
        await takeBytes(textBytes);
        begin();
        try {
          const step = await events.next();
          if (step.done !== true) return controller.enqueue(encode(step.value));
        } catch (error) {
          // The client continues from its cursor.
          const isRefused = error instanceof AppError && error.code === "unauthorized";
          const isExpected = isRefused || isStoreOutage(error) || hungUp.signal.aborted;
          if (!isExpected) log.error("events: {error}", { error });
        }
        finished();
        controller.close();
      },
      cancel: hangUp,
    },
    { highWaterMark: 0 },
  );
}

/** Proxies must pass on each event as it comes. */
export function eventHeaders(format: EventFormat): Record<string, string> {
  return {
    "Content-Type": contentTypes[format],
    "Cache-Control": "private, no-store, no-transform",
    "X-Accel-Buffering": "no",
  };
}

/** The event streams that are open at this process. */
export type OpenStreams = ReturnType<typeof openStreams>;

/** Bounds the open streams of a client, because each costs memory and a connection. */
export function openStreams({ config, processMetrics }: RouteDeps) {
  // On Workers, the end of a stream may go unnoticed, so only the platform's own limits apply.
  const most = processMetrics ? config.max_event_streams : Infinity;
  const open = new Map<string, number>();
  const change = (holder: string, by: 1 | -1): void => {
    const streams = (open.get(holder) ?? 0) + by;
    if (streams > 0) open.set(holder, streams);
    else open.delete(holder);
  };
  return {
    /**
     * Counts a stream until it ends. Each API key has a count; without keys, all clients share one.
     *
     * @returns a function that ends the stream; safe to call twice.
     * @throws AppError 429 when `max_event_streams` are open.
     */
    begin(keyId: string | null | undefined): () => void {
      const holder = keyId ?? "";
      if ((open.get(holder) ?? 0) >= most) {
        const whose = holder === "" ? "this service" : "this API key";
        const detail = `${most} event streams of ${whose} are open (max_event_streams): close some, or poll GET /jobs/{id}/logs.`;
        throw new AppError("rate_limited", detail, {}, { "Retry-After": "10" });
      }
      change(holder, 1);
      let hasEnded = false;
      return () => {
        if (!hasEnded) change(holder, -1);
        hasEnded = true;
      };
    },
  };
}

/** Passes events on, and calls `end` after the last one or when the reader stops. */
export async function* endingWith<T>(events: AsyncGenerator<T>, end: () => void) {
  try {
    yield* events;
  } finally {
    end();
  }
}

/** What the last attempt of a job has written to one stream so far; empty once that attempt is lost. */
interface Log {
  size: number;
  open: (offset: number, length: number) => ReadableStream<Uint8Array>;
}

export async function readLog(deps: ClientDeps, e: ExecutionRow, stream: StreamName): Promise<Log> {
  const attempt = e.leaseId === null ? e.attempt + 1 : e.attempt;
  const isResult = e.resultHash !== null;
  const sizes = isResult
    ? await resultLengths(deps.db, e.id)
    : await outputEnds(deps.db, { executionId: e.id, attempt });
  async function* parts(offset: number): AsyncGenerator<Uint8Array> {
    let next = offset;
    if (!isResult) {
      const read = storedOutput(deps, e.id, attempt, { ...others, [stream]: offset });
      for await (const { data } of read()) {
        yield data;
        next += data.length;
      }
    }
    // A result that arrived meanwhile has replaced the stored output.
    for await (const { data } of resultOutput(deps, e.id, stream, next, 0)) yield data;
  }
  const others = { stdout: Number.MAX_SAFE_INTEGER, stderr: Number.MAX_SAFE_INTEGER };
  return {
    size: sizes[stream],
    open: (offset, length) => pulled(parts(offset), length),
  };
}

/** The first `length` bytes of parts, read as fast as the client takes them. */
function pulled(parts: AsyncGenerator<Uint8Array>, length: number) {
  let left = length;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const step = left > 0 ? await parts.next() : undefined;
        if (!step || step.done === true) return controller.close();
        const data = step.value.slice(0, left);
        left -= data.length;
        controller.enqueue(data);
      },
      cancel: async () => void (await parts.return(undefined)),
    },
    { highWaterMark: 0 },
  );
}
