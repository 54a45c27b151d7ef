import { createMcpHandler } from "@modelcontextprotocol/server";
import { z } from "zod";
import { ExecutionPage, isTerminal } from "../../shared/wire/execution.ts";
import { type Api, askToCancel } from "./api.ts";
import { type Connection, mcpServer } from "./server.ts";

export const sessionHeader = "Mcp-Session-Id";
const SessionId = z.uuid();
const Cancelled = z.object({
  method: z.literal("notifications/cancelled"),
  params: z.object({ requestId: z.union([z.string(), z.number()]) }),
});
const Initialize = z.object({ method: z.literal("initialize") });

/** A request to the endpoint, whose body has been read. */
export interface McpRequest {
  request: Request;
  body: string;
  /** Counts so many further calls for the rate limit, and throws if they are too many. */
  countMore: (calls: number) => Promise<void>;
  /** Whether the service itself ends the open requests. */
  isStopping: () => boolean;
}

/**
 * Answers one request to the endpoint. Clients of the revision 2026-07-28 cancel a call by closing its
 * stream. Older ones send a notification, which may reach another process: `initialize` gives them a
 * session id, jobs are marked with it and with the request's id, and so any process finds them.
 */
export async function serveMcp(
  { request, body, countMore, isStopping }: McpRequest,
  connection: Pick<Connection, "api" | "keep" | "version">,
): Promise<Response> {
  const parsed = parse(body);
  const messages = [parsed].flat();
  if (messages.length > maxMessages) return tooMany();
  await countMore(messages.length - 1);
  const session = SessionId.safeParse(request.headers.get(sessionHeader)).data;
  for (const message of messages) {
    const cancelled = Cancelled.safeParse(message).data;
    if (cancelled && session !== undefined) {
      const mark = markOf(session, cancelled.params.requestId);
      const refusal = await cancelCall(connection.api, mark);
      if (refusal) return refusal;
    }
  }
  const { fetch } = createMcpHandler(
    ({ era }) =>
      mcpServer({
        ...connection,
        metadataOf: (id) => (session === undefined ? {} : markOf(session, id)),
        abortCancels: () => era === "modern" && !isStopping(),
      }),
    // workerd notices that a client has closed its connection when it next writes to it.
    { responseMode: "sse", keepAliveMs: 2000 },
  );
  // In workerd only the original request's signal tells that the client has gone.
  const response = await (parsed === undefined && body !== ""
    ? fetch(new Request(request.url, { method: request.method, headers: request.headers, body }))
    : fetch(request, { parsedBody: parsed }));
  const answer = new Response(response.body, response);
  answer.headers.set("X-Accel-Buffering", "no");
  if (response.ok && messages.some((message) => Initialize.safeParse(message).success)) {
    answer.headers.set(sessionHeader, crypto.randomUUID());
  }
  return answer;
}

/** Of one request. The SDK has the same bound, but looks for cancellations later. */
const maxMessages = 100;

function tooMany(): Response {
  const message = `Invalid Request: Batch must not exceed ${maxMessages} messages`;
  const error = { code: -32600, message };
  return Response.json({ jsonrpc: "2.0", error, id: null }, { status: 400 });
}

/** A value of an execution's metadata has at most 512 characters. */
function markOf(session: string, requestId: string | number): Record<string, string> {
  const call = `${session}:${JSON.stringify(requestId)}`;
  return call.length <= 512 ? { mcp_call: call } : {};
}

const lookAgainAfterMs = 1000;
/** The longest time that a call waits for its job. */
const callLastsMs = 10 * 60_000;

/**
 * Cancels the jobs of a call. The call may still be storing its job, so it looks twice. Returns the answer
 * of a request that failed.
 */
async function cancelCall(api: Api, mark: Record<string, string>): Promise<Response | undefined> {
  const [entry] = Object.entries(mark);
  if (!entry) return undefined;
  const query = new URLSearchParams({
    metadata: entry.join(":"),
    created_after: new Date(Date.now() - callLastsMs).toISOString(),
  });
  for (const pauseMs of [0, lookAgainAfterMs]) {
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
    const response = await api(`/executions?${query.toString()}`);
    if (!response.ok) return response;
    const { items } = ExecutionPage.parse(await response.json());
    const open = items.filter(({ status }) => !isTerminal(status));
    const answers = await Promise.all(open.map((job) => askToCancel(api, job.execution_id)));
    const failed = answers.find(({ status }) => status >= 500);
    if (failed || items.length > 0) return failed;
  }
  return undefined;
}

/** Undefined if it is not JSON; the SDK then sends the error. */
function parse(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}
