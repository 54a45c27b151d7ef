import { createRoute, z, type OpenAPIHono } from "@hono/zod-openapi";
import {
  Session,
  SessionPage,
  SessionPatch,
  SessionRequest,
  SessionStatus,
} from "../../../shared/wire/client/session.ts";
import { IdempotencyHeader } from "../../../shared/wire/client/submission.ts";
import type { RouteDeps } from "../../deps.ts";
import { jsonBody } from "../../http/body/json.ts";
import type { AppEnv } from "../../http/context.ts";
import { actorOf, originOf } from "../../http/origin.ts";
import { keyed } from "../../jobs/idempotency.ts";
import { sessionId } from "../../openapi/examples/jobs.ts";
import { queuedSession, session, sessionRequest } from "../../openapi/examples/sessions.ts";
import { idParam, integerQuery, pageQuery } from "../../openapi/parameters.ts";
import { body, json, problems } from "../../openapi/responses/bodies.ts";
import { problem } from "../../openapi/responses/problems.ts";
import { deleteSession, patchSession } from "../../sessions/change-session.ts";
import { makeSession } from "../../sessions/create-session.ts";
import {
  describeSession,
  sessionEnded,
  toSessions,
  waitUntilReady,
} from "../../sessions/read-session.ts";
import { listSessions } from "../../store/sessions/sessions.ts";

export const sessionParam = idParam("The `session_id`.", sessionId);
export const unknownSession = problem("not_found", {
  detail: `Session ${sessionId} does not exist.`,
  session_id: sessionId,
});
export const endedSession = problem("session_ended");

/** Sessions: sandboxes whose interpreter remembers from call to call. */
export function sessionRoutes(app: OpenAPIHono<AppEnv>, deps: RouteDeps): void {
  const middleware = jsonBody(deps.config.max_request_bytes);
  const create = createRoute({
    method: "post",
    path: "/sessions",
    operationId: "createSession",
    tags: ["Sessions"],
    summary: "Make a session",
    description:
      "A session is one sandbox with one interpreter: variables, imports and files of a call are there for the next one, also after a call has failed. It ends after `idle_timeout` without a call, at the end of its `lifetime`, or when it is deleted. Its sandbox is shared with nobody.",
    middleware,
    request: {
      headers: IdempotencyHeader,
      ...body(SessionRequest, { example: sessionRequest }),
    },
    responses: {
      201: json(Session, "Ready for calls.", { example: session }, "Location"),
      202: json(
        Session,
        "Not ready yet. Calls may be sent: they wait.",
        { example: queuedSession },
        "Location",
      ),
      409: endedSession,
      429: problem("too_many_sessions"),
      ...problems("invalid_request", "too_large", "timeout_too_long", "unavailable"),
    },
  });
  app.openapi(create, async (c) => {
    const client = c.get("client");
    const request = keyed(c.req.valid("json"), c.req.valid("header"));
    const { id } = await makeSession(client, request, originOf(deps, c));
    const made = await waitUntilReady(client, id, request.wait * 1000, c.req.raw.signal);
    if (made.status === "ended") throw sessionEnded(made);
    const Location = `/sessions/${id}`;
    const status = made.status === "ready" ? 201 : 202;
    return c.json(await describeSession(client, made), status, { Location });
  });

  const list = createRoute({
    method: "get",
    path: "/sessions",
    operationId: "listSessions",
    tags: ["Sessions"],
    summary: "Sessions, newest first",
    request: {
      query: z.object({
        status: SessionStatus.optional().openapi({ description: "Only sessions in this state." }),
        before: z.uuid().optional().openapi({
          description: "Id of the last session of the previous page: only older ones.",
          example: sessionId,
        }),
        ...pageQuery,
      }),
    },
    responses: {
      200: json(SessionPage, "A page of sessions.", {
        example: { items: [session], limit: 100, offset: 0, has_more: false, count: 1 },
      }),
      ...problems("invalid_request"),
    },
  });
  app.openapi(list, async (c) => {
    const { limit, offset, ...filter } = c.req.valid("query");
    const client = c.get("client");
    const found = await listSessions(client.db, filter, limit + 1, offset);
    const items = await toSessions(client, found.slice(0, limit));
    const has_more = found.length > limit;
    return c.json({ items, limit, offset, has_more, count: items.length }, 200);
  });

  const one = createRoute({
    method: "get",
    path: "/sessions/{id}",
    operationId: "getSession",
    tags: ["Sessions"],
    summary: "A session as it is now",
    request: {
      params: sessionParam,
      query: z.object({
        wait: integerQuery(
          { minimum: 0, maximum: 600, default: 0 },
          "Seconds to wait for it to be ready, or to end before that.",
        ),
      }),
    },
    responses: {
      200: json(Session, "The session.", { example: session }),
      404: unknownSession,
      ...problems("invalid_request"),
    },
  });
  app.openapi(one, async (c) => {
    const client = c.get("client");
    const waitMs = c.req.valid("query").wait * 1000;
    const { id } = c.req.valid("param");
    const found = await waitUntilReady(client, id, waitMs, c.req.raw.signal);
    return c.json(await describeSession(client, found), 200);
  });

  const patch = createRoute({
    method: "patch",
    path: "/sessions/{id}",
    operationId: "updateSession",
    tags: ["Sessions"],
    summary: "Change how long a session lives, or its metadata",
    middleware,
    request: { params: sessionParam, ...body(SessionPatch, { example: { lifetime: 7200 } }) },
    responses: {
      200: json(Session, "The session after the change.", { example: session }),
      404: unknownSession,
      409: endedSession,
      ...problems("invalid_request", "too_large", "timeout_too_long"),
    },
  });
  app.openapi(patch, async (c) => {
    const client = c.get("client");
    const changed = await patchSession(client, c.req.valid("param").id, c.req.valid("json"));
    return c.json(await describeSession(client, changed), 200);
  });

  const removal = createRoute({
    method: "delete",
    path: "/sessions/{id}",
    operationId: "deleteSession",
    tags: ["Sessions"],
    summary: "End a session",
    description:
      "Its sandbox is closed. A call that runs is cancelled and keeps its output so far; calls that wait are cancelled. A repeat changes nothing. Its record and those of its calls stay.",
    request: { params: sessionParam },
    responses: { 204: { description: "It has ended." }, 404: unknownSession },
  });
  app.openapi(removal, async (c) => {
    const client = c.get("client");
    await deleteSession(client, c.req.valid("param").id, actorOf(deps, c));
    return c.body(null, 204);
  });
}
