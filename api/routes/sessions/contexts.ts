import { createRoute, z, type OpenAPIHono } from "@hono/zod-openapi";
import {
  defaultContext,
  SessionContext,
  SessionContexts,
} from "../../../shared/wire/client/session.ts";
import { limits } from "../../../shared/wire/limits.ts";
import type { AppEnv } from "../../http/context.ts";
import { contextId } from "../../openapi/examples/sessions.ts";
import { json } from "../../openapi/responses/bodies.ts";
import { dropContext, makeContext } from "../../sessions/contexts.ts";
import { requireSession } from "../../sessions/read-session.ts";
import { endedSession, sessionParam, unknownSession } from "./sessions.ts";

/** Contexts: further interpreters of a session, with variables of their own. */
export function contextRoutes(app: OpenAPIHono<AppEnv>): void {
  const create = createRoute({
    method: "post",
    path: "/sessions/{id}/contexts",
    operationId: "createSessionContext",
    tags: ["Sessions"],
    summary: "Make another interpreter in a session",
    description: `It has variables of its own, and shares files and memory with the others. Only one call runs at a time in all of them. A session has at most ${limits.contextsMax}. Send its \`context_id\` as \`context\` of calls.`,
    request: { params: sessionParam },
    responses: {
      201: json(SessionContext, "Made. It starts with its first call.", {
        example: { context_id: contextId },
      }),
      404: unknownSession,
      409: endedSession,
    },
  });
  app.openapi(create, async (c) => {
    const { id } = c.req.valid("param");
    return c.json({ context_id: await makeContext(c.get("client"), id) }, 201);
  });

  const list = createRoute({
    method: "get",
    path: "/sessions/{id}/contexts",
    operationId: "listSessionContexts",
    tags: ["Sessions"],
    summary: "The interpreters of a session",
    request: { params: sessionParam },
    responses: {
      200: json(SessionContexts, "All of them.", {
        example: { items: [{ context_id: defaultContext }, { context_id: contextId }] },
      }),
      404: unknownSession,
    },
  });
  app.openapi(list, async (c) => {
    const { contexts } = await requireSession(c.get("client"), c.req.valid("param").id);
    const items = [defaultContext, ...contexts].map((context_id) => ({ context_id }));
    return c.json({ items }, 200);
  });

  const removal = createRoute({
    method: "delete",
    path: "/sessions/{id}/contexts/{context_id}",
    operationId: "deleteSessionContext",
    tags: ["Sessions"],
    summary: "Remove an interpreter from a session",
    description: "It must have no call that waits or runs. The context `default` stays.",
    request: {
      params: sessionParam.extend({
        context_id: z.string().openapi({
          param: { name: "context_id", in: "path" },
          example: contextId,
        }),
      }),
    },
    responses: {
      204: { description: "Removed." },
      404: unknownSession,
      409: endedSession,
    },
  });
  app.openapi(removal, async (c) => {
    const { id, context_id } = c.req.valid("param");
    await dropContext(c.get("client"), id, context_id);
    return c.body(null, 204);
  });
}
