import { createRoute, z, type OpenAPIHono } from "@hono/zod-openapi";
import { streamNames } from "../../../shared/wire/output.ts";
import type { RouteDeps } from "../../deps.ts";
import { type EventCursor, parseCursor } from "../../domain/event-cursor.ts";
import { AppError } from "../../errors.ts";
import { contentTypes, formatOf } from "../../events/encode.ts";
import { follow } from "../../events/follow.ts";
import { endingWith, type OpenStreams } from "../../events/open-streams.ts";
import { eventHeaders, eventStream } from "../../events/stream.ts";
import { readLog } from "../../events/log.ts";
import type { AppEnv } from "../../http/context.ts";
import { sendStored } from "../../http/send-file.ts";
import { eventLines, eventsDescription, serverSentEvents } from "../../openapi/examples/events.ts";
import { problem, problemRef, tooManyStreams } from "../../openapi/responses/problems.ts";
import { headers } from "../../openapi/responses/headers.ts";
import { problems } from "../../openapi/responses/bodies.ts";
import { integerQuery, jobIdParam } from "../../openapi/parameters.ts";
import { requireExecution } from "../../jobs/read-records.ts";

const text = z.string();

export function eventRoutes(app: OpenAPIHono<AppEnv>, deps: RouteDeps, streams: OpenStreams): void {
  const events = createRoute({
    method: "get",
    path: "/jobs/{id}/events",
    operationId: "followJob",
    tags: ["Jobs"],
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
      ...problems("not_found"),
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
    const body = eventStream(deps, format, events, signals);
    return c.body(body, 200, eventHeaders(format));
  });

  const logs = createRoute({
    method: "get",
    path: "/jobs/{id}/logs",
    operationId: "getJobLogs",
    tags: ["Jobs"],
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
      ...problems("invalid_request", "not_found"),
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
