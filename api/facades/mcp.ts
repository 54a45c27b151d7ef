import {
  createMcpHandler,
  isLegacyRequest,
  type Server,
  WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";
import { z } from "zod";
import { JsonError, parsePlainJsonInPieces } from "../../shared/json.ts";
import { isTerminal } from "../../shared/wire/executions.ts";
import { limits } from "../../shared/wire/limits.ts";
import { AirlockError, ProblemError } from "../../clients/typescript/src/errors.ts";
import type { Verbs } from "../../clients/typescript/src/verbs.ts";
import { type Connection, mcpServer } from "../../clients/mcp/server.ts";
import {
  type Api,
  clientOf,
  createSession,
  executeCode,
  getJob,
  maxResourceBytes,
  runInSession,
} from "../../clients/mcp/tools.ts";

export type { Api };
export const sessionHeader = "Mcp-Session-Id";
const SessionId = z.uuid();
const Cancelled = z.object({
  method: z.literal("notifications/cancelled"),
  params: z.object({ requestId: z.union([z.string(), z.number()]) }),
});
const Identified = z.object({
  method: z.string(),
  id: z.union([z.string(), z.number()]),
});
const waitingTools = [executeCode, getJob, createSession, runInSession].map(({ name }) => name);
const Waiting = z.object({
  method: z.literal("tools/call"),
  params: z.object({ name: z.enum(waitingTools) }),
});
const Initialize = z.object({ method: z.literal("initialize") });

/** A request to the endpoint, whose body has been read. */
interface McpRequest {
  request: Request;
  body: string;
  /** Counts this many further calls for the rate limit, and throws if that exceeds it. */
  countMore: (calls: number) => Promise<void>;
  /** Whether the service itself ends the open requests. */
  isStopping: () => boolean;
  /** When files are read. */
  inSequence: Sequence;
}

/**
 * Answers one request to the endpoint. Clients of the revision 2026-07-28 cancel a call by closing its
 * stream. Older ones send a notification, which may reach another process: `initialize` gives them a
 * session id, jobs are marked with it and with the request's id, and so any process finds them.
 */
export async function serveMcp(
  { request, body, countMore, isStopping, inSequence }: McpRequest,
  { api, ...connection }: Pick<Connection, "keep" | "version"> & { api: Api },
): Promise<Response> {
  let sent: unknown;
  try {
    sent = await parseMessages(body);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    return invalidRequest(`${error.path || "the message"}: ${error.message}`);
  }
  const sentCount = [sent].flat().length;
  if (sentCount > maxMessages) {
    return invalidRequest(`Batch must not exceed ${maxMessages} messages`);
  }
  await countMore(sentCount - 1);
  const parsed = Array.isArray(sent) ? withoutCancelled(sent) : sent;
  const messages = [parsed].flat();
  if (messages.length === 0 && sentCount > 0) return new Response(null, { status: 202 });
  const session = SessionId.safeParse(request.headers.get(sessionHeader)).data;
  if (session !== undefined) {
    const cancelled = new Set(messages.map(cancels));
    cancelled.delete(undefined);
    const marks = Array.from(cancelled, (id) => markOf(session, id!));
    try {
      // Together: each of an unknown call takes a second.
      await Promise.all(marks.map((mark) => cancelCall(clientOf(api), mark)));
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      return refusalOf(error);
    }
  }
  const serverFor = (era: "modern" | "legacy") =>
    mcpServer({
      ...connection,
      airlock: clientOf(boundDownloads(api, maxResourceBytes, inSequence)),
      metadataOf: (id) => (session === undefined ? {} : markOf(session, id)),
      abortCancels: () => era === "modern" && !isStopping(),
    });
  // Calls that do not wait are answered with JSON: the official Python client accepts events of at most 1 MiB.
  const isQuick = parsed !== undefined && !messages.some(waits);
  const { fetch } = createMcpHandler(({ era }) => serverFor(era), {
    responseMode: isQuick ? "auto" : "sse",
    // workerd notices that a client has closed its connection when it next writes to it.
    keepAliveMs: 2000,
  });
  // In workerd only the original request's signal tells that the client has gone.
  const response = await (parsed === undefined && (body !== "" || request.method === "POST")
    ? fetch(new Request(request.url, { method: request.method, headers: request.headers, body }))
    : isQuick && request.method === "POST" && (await isLegacyRequest(request, parsed))
      ? answerWithJson(request, parsed, serverFor("legacy"))
      : fetch(request, { parsedBody: parsed }));
  const answer = new Response(response.body, response);
  answer.headers.set("X-Accel-Buffering", "no");
  if (response.ok && messages.some((message) => Initialize.safeParse(message).success)) {
    answer.headers.set(sessionHeader, crypto.randomUUID());
  }
  return answer;
}

/** The answer of the service to a request of this one. */
function refusalOf({ status, problem, message, retryAfterS }: ProblemError): Response {
  const headers = retryAfterS === undefined ? {} : { "Retry-After": String(retryAfterS) };
  return Response.json(problem ?? { detail: message }, { status, headers });
}

/** Answers clients of 2025 with JSON. The SDK's own handler answers them only with events. */
async function answerWithJson(
  request: Request,
  parsedBody: unknown,
  server: Server,
): Promise<Response> {
  const transport = new WebStandardStreamableHTTPServerTransport({ enableJsonResponse: true });
  await server.connect(transport);
  try {
    return await transport.handleRequest(request, { parsedBody });
  } finally {
    await server.close();
  }
}

/**
 * The messages of a batch without the requests that it cancels itself, and without those cancellations: a
 * cancelled request gets no answer.
 */
function withoutCancelled(messages: unknown[]): unknown[] {
  const requested = new Set(messages.map(idOf));
  const ended = new Set(messages.map(cancels).filter((id) => requested.has(id)));
  ended.delete(undefined);
  return messages.filter((message) => !ended.has(cancels(message) ?? idOf(message)));
}

function idOf(message: unknown): string | number | undefined {
  return Identified.safeParse(message).data?.id;
}

function cancels(message: unknown): string | number | undefined {
  return Cancelled.safeParse(message).data?.params.requestId;
}

function waits(message: unknown): boolean {
  return Waiting.safeParse(message).success;
}

/** Of one request. The SDK has the same bound, but looks for cancellations later. */
const maxMessages = 100;

function invalidRequest(problem: string): Response {
  const error = { code: -32600, message: `Invalid Request: ${problem}` };
  return Response.json({ jsonrpc: "2.0", error, id: null }, { status: 400 });
}

/**
 * Undefined if it is not JSON; the SDK then sends the error. Numbers of `input_data` stay as they were written.
 *
 * @throws JsonError if it exceeds a bound.
 */
async function parseMessages(body: string): Promise<unknown> {
  const { jsonDepthMax: depth, requestMaxValues: values } = limits;
  // `input_data` is in `params.arguments` of a message; there may be an array of messages.
  const inputDepth = body.trimStart().startsWith("[") ? 4 : 3;
  const exact = { key: "input_data", depth: inputDepth, values, isExact: true };
  try {
    return await parsePlainJsonInPieces(body, { depth, values, roomy: exact });
  } catch (error) {
    if (error instanceof JsonError && error.isMalformed) return undefined;
    throw error;
  }
}

/** Metadata by which any process finds the jobs of a call. A value of an execution's metadata has at most 512 characters. */
function markOf(session: string, requestId: string | number): Record<string, string> {
  const call = `${session}:${JSON.stringify(requestId)}`;
  return call.length <= 512 ? { mcp_call: call } : {};
}

const lookAgainAfterMs = 1000;
/** The longest time that a call waits for its job. */
const callLastsMs = 10 * 60_000;

/**
 * Cancels the jobs of a call. The call may still be storing its job, so it looks twice.
 *
 * @throws ProblemError if the service cannot do that now.
 */
async function cancelCall(airlock: Verbs, mark: Record<string, string>): Promise<void> {
  if (Object.keys(mark).length === 0) return;
  const created_after = new Date(Date.now() - callLastsMs).toISOString();
  for (const pauseMs of [0, lookAgainAfterMs]) {
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
    const cancelled: Promise<void>[] = [];
    let found = 0;
    for await (const job of airlock.list({ metadata: mark, created_after })) {
      found++;
      if (!isTerminal(job.status)) cancelled.push(cancelOpen(airlock, job.execution_id));
    }
    await Promise.all(cancelled);
    if (found > 0) return;
  }
}

/** A job may end meanwhile. */
async function cancelOpen(airlock: Verbs, id: string): Promise<void> {
  await airlock.cancel(id).catch((error: unknown) => {
    if (!(error instanceof ProblemError) || error.status >= 500) throw error;
  });
}

/** Runs work when the queue has room. */
export type Sequence = <T>(work: () => Promise<T>) => Promise<T>;

/** Runs at most `most` pieces of work at the same time; the others wait in order. */
export function createSequence(most: number): Sequence {
  const waiting: (() => void)[] = [];
  let free = most;
  return async (work) => {
    if (free > 0) free--;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = waiting.shift();
      if (next) next();
      else free++;
    }
  };
}

/** The same requests, except that files are read one after the other and have at most `maxBytes` together. */
export function boundDownloads(api: Api, maxBytes: number, inSequence: Sequence): Api {
  let left = maxBytes;
  return async (path, init) => {
    if (!isDownload.test(path)) return api(path, init);
    return inSequence(async () => {
      init?.signal?.throwIfAborted();
      const response = await api(path, init);
      const bytes = Number(response.headers.get("Content-Length"));
      if (bytes > left) {
        await response.body?.cancel();
        const message = `The answers to one HTTP request have at most ${maxBytes} bytes of files together. Read this file with a request of its own.`;
        throw new AirlockError(message);
      }
      left -= bytes;
      return new Response(await response.arrayBuffer(), response);
    });
  };
}

const isDownload = /^\/jobs\/[^/]+\/artifacts\/./;
