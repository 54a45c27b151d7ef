import { createRoute, type OpenAPIHono } from "@hono/zod-openapi";
import { PoolAgent } from "../../../shared/wire/health.ts";
import {
  HostList,
  Invitation,
  InvitationRequest,
  JoinedHost,
} from "../../../shared/wire/client/hosts.ts";
import { drainAgent, listHosts, revokeHost, rotateHost } from "../../agents/hosts.ts";
import { invite } from "../../agents/tokens.ts";
import type { Deps } from "../../deps.ts";
import { poolStats } from "../../domain/agents/capacity.ts";
import { notFound } from "../../errors.ts";
import type { AppEnv } from "../../http/context.ts";
import { actorOf } from "../../http/origin.ts";
import { jsonBody } from "../../http/body/json.ts";
import { poolStats as poolExample } from "../../openapi/examples/health.ts";
import { agentId, invitation, joinedHost } from "../../openapi/examples/hosts.ts";
import { problem } from "../../openapi/responses/problems.ts";
import { body, json, problems } from "../../openapi/responses/bodies.ts";
import { idParam } from "../../openapi/parameters.ts";
import { listAgents } from "../../store/agents/agents.ts";
import { readQueueStats } from "../../store/statistics/queue.ts";

const hostParam = idParam("The `id` of a host, from `GET /hosts`.", joinedHost.id);
const agentParam = idParam("The `id` of an agent, from `GET /pool/stats`.", agentId);

/** What operators do with hosts and their agents. */
export function hostRoutes(app: OpenAPIHono<AppEnv>, deps: Deps): void {
  const { config, db, now } = deps;
  const tags = ["Hosts and agents"];

  const list = createRoute({
    method: "get",
    path: "/hosts",
    operationId: "listHosts",
    tags,
    summary: "Hosts that have joined",
    responses: {
      200: json(HostList, "The oldest first.", { example: { hosts: [joinedHost] } }),
    },
  });
  app.openapi(list, async (c) => c.json({ hosts: await listHosts(deps) }, 200));

  const newInvitation = createRoute({
    method: "post",
    path: "/hosts/invitations",
    operationId: "inviteHost",
    tags,
    summary: "Make a code with which a host can join",
    description:
      "On the host: `npm run agent -- join --url <address of this API> --code <code>`. One host can use the code, once.",
    middleware: jsonBody(config.max_request_bytes),
    request: body(InvitationRequest, { example: { name: "gpu-1", expires_in_s: 3600 } }),
    responses: {
      201: json(Invitation, "The code.", { example: invitation }),
      ...problems("invalid_request", "too_large"),
    },
  });
  app.openapi(newInvitation, async (c) => {
    const { name = null, expires_in_s } = c.req.valid("json");
    const expiresInMs = expires_in_s * 1000;
    const expires_at = new Date(now() + expiresInMs).toISOString();
    const code = await invite(deps, { name, expiresInMs }, actorOf(deps, c));
    return c.json({ code, name, expires_at }, 201);
  });

  const revoke = createRoute({
    method: "post",
    path: "/hosts/{id}/revoke",
    operationId: "revokeHost",
    tags,
    summary: "Void a host's token",
    description:
      "Its agents get no more work. What they run goes to others when its leases end. A repeat changes nothing.",
    request: { params: hostParam },
    responses: {
      200: json(JoinedHost, "The host after the call.", {
        example: { ...joinedHost, revoked_at: "2026-11-22T10:00:00.000Z" },
      }),
      ...problems("not_found"),
    },
  });
  app.openapi(revoke, async (c) =>
    c.json(await revokeHost(deps, c.req.valid("param").id, actorOf(deps, c)), 200),
  );

  const rotate = createRoute({
    method: "post",
    path: "/hosts/{id}/rotate",
    operationId: "rotateHost",
    tags,
    summary: "Ask a host to replace its token",
    description:
      "A running agent of the host makes a new token, and the old one becomes void. The request ends the agent's waiting poll, so this takes seconds. Running jobs go on. The token itself never leaves the host. The record has `rotation_asked_at` until the new token is in use.",
    request: { params: hostParam },
    responses: {
      200: json(JoinedHost, "The host after the call.", {
        example: { ...joinedHost, rotation_asked_at: "2026-11-22T10:00:00.000Z" },
      }),
      ...problems("not_found"),
      409: problem("conflict", {
        detail: "The token of gpu-1 is revoked: the host must join again.",
      }),
    },
  });
  app.openapi(rotate, async (c) =>
    c.json(await rotateHost(deps, c.req.valid("param").id, actorOf(deps, c)), 200),
  );

  async function describeAgent(id: string): Promise<PoolAgent> {
    const [known, queue] = await Promise.all([listAgents(db), readQueueStats(db)]);
    const agent = poolStats(known, queue, config, now()).agents.find((one) => one.id === id);
    if (!agent) throw notFound(`Agent ${id}`);
    return agent;
  }

  const [shown] = poolExample.agents;
  const drains = [
    {
      path: "/agents/{id}/drain",
      operationId: "drainAgent",
      summary: "Give an agent no new work",
      description:
        "The agent finishes the jobs that it runs. It takes work again after `POST /agents/{id}/resume`, or after a new start of its program.",
      isDraining: true,
      example: { ...shown!, state: "draining" as const },
    },
    {
      path: "/agents/{id}/resume",
      operationId: "resumeAgent",
      summary: "Give a drained agent work again",
      isDraining: false,
      example: shown!,
    },
  ];
  for (const { isDraining, example, ...words } of drains) {
    const route = createRoute({
      method: "post",
      ...words,
      tags,
      request: { params: agentParam },
      responses: {
        200: json(PoolAgent, "The agent after the call.", { example }),
        ...problems("not_found"),
      },
    });
    app.openapi(route, async (c) => {
      const { id } = c.req.valid("param");
      await drainAgent(deps, id, isDraining, actorOf(deps, c));
      return c.json(await describeAgent(id), 200);
    });
  }
}
