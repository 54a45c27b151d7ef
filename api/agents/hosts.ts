import { createRoute, type OpenAPIHono } from "@hono/zod-openapi";
import { HostList, Invitation, InvitationRequest, JoinedHost } from "../../shared/wire/access.ts";
import { PoolAgent } from "../../shared/wire/health.ts";
import type { Deps } from "../deps.ts";
import { AppError, notFound } from "../errors.ts";
import { jsonBody } from "../http/body.ts";
import { actorOf, type AppEnv } from "../http/context.ts";
import { body, idParam, json, problem } from "../http/responses.ts";
import { optionalTimestamp, timestamp } from "../jobs/read.ts";
import { readQueueStats } from "../jobs/sql.ts";
import { poolStatsExample as poolExample } from "../monitoring/health.ts";
import type { Actor } from "../tenants/sql.ts";
import {
  type AgentRow,
  type AgentTokenRow,
  askForRotation,
  invite,
  listTokens,
  revokeToken,
  setDraining,
} from "./agents.ts";
import { listAgents } from "./fleet.ts";
import { poolStats } from "./placement.ts";

/** The example of the documentation: a host with one agent, and the code that it joined with. */
const agentId = "019aa5ef-0d3c-7b51-a6f0-91c2d3e4f506";

const invitation: Invitation = {
  code: "alj_6b1d0c9e8f7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c",
  name: "gpu-1",
  expires_at: "2026-11-22T10:30:00.000Z",
};

export const joinedHost: JoinedHost = {
  id: "0198c39f-2a41-7d6c-8b5e-4f3a2b1c0d9e",
  name: "gpu-1",
  joined_at: "2026-11-22T09:31:12.000Z",
  last_used_at: "2026-11-22T09:45:00.000Z",
  revoked_at: null,
  agents: [agentId],
};

const hostParam = idParam("The `id` of a host, from `GET /hosts`.", joinedHost.id);
const agentParam = idParam("The `id` of an agent, from `GET /pool/stats`.", agentId);

/** What operators do with hosts and their agents. */
export function hostRoutes(app: OpenAPIHono<AppEnv>, deps: Deps): void {
  const { config, db, now } = deps;

  const list = createRoute({
    method: "get",
    path: "/hosts",
    operationId: "listHosts",
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
    summary: "Make a code with which a host can join",
    description:
      "On the host: `npm run agent -- join --url <address of this API> --code <code>`. One host can use the code, once.",
    middleware: jsonBody(config.max_request_bytes),
    request: body(InvitationRequest, { example: { name: "gpu-1", expires_in_s: 3600 } }),
    responses: {
      201: json(Invitation, "The code.", { example: invitation }),
    },
  });
  app.openapi(newInvitation, async (c) => {
    const { name = null, expires_in_s } = c.req.valid("json");
    const expiresInMs = expires_in_s * 1000;
    const expires_at = timestamp(now() + expiresInMs);
    const code = await invite(deps, { name, expiresInMs }, actorOf(deps, c));
    return c.json({ code, name, expires_at }, 201);
  });

  const revoke = createRoute({
    method: "post",
    path: "/hosts/{id}/revoke",
    operationId: "revokeHost",
    summary: "Void a host's token",
    description:
      "Its agents get no more work. What they run goes to others when its leases end. A repeat changes nothing.",
    request: { params: hostParam },
    responses: {
      200: json(JoinedHost, "The host after the call.", {
        example: { ...joinedHost, revoked_at: "2026-11-22T10:00:00.000Z" },
      }),
    },
  });
  app.openapi(revoke, async (c) =>
    c.json(await revokeHost(deps, c.req.valid("param").id, actorOf(deps, c)), 200),
  );

  const rotate = createRoute({
    method: "post",
    path: "/hosts/{id}/rotate",
    operationId: "rotateHost",
    summary: "Ask a host to replace its token",
    description:
      "A running agent of the host makes a new token, and the old one becomes void. The request ends the agent's waiting poll, so this takes seconds. Running jobs go on. The token itself never leaves the host. The record has `rotation_asked_at` until the new token is in use.",
    request: { params: hostParam },
    responses: {
      200: json(JoinedHost, "The host after the call.", {
        example: { ...joinedHost, rotation_asked_at: "2026-11-22T10:00:00.000Z" },
      }),
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
      request: { params: agentParam },
      responses: {
        200: json(PoolAgent, "The agent after the call.", { example }),
      },
    });
    app.openapi(route, async (c) => {
      const { id } = c.req.valid("param");
      await drainAgent(deps, id, isDraining, actorOf(deps, c));
      return c.json(await describeAgent(id), 200);
    });
  }
}

/** Every host that has joined, the oldest first. */
async function listHosts({ db }: Deps): Promise<JoinedHost[]> {
  const [tokens, agents] = await Promise.all([listTokens(db), listAgents(db)]);
  return tokens.map((token) => describeHost(token, agents));
}

/** Voids a host's token. A repeat changes nothing. @throws AppError 404 for an unknown host. */
async function revokeHost(deps: Deps, id: string, by: Actor): Promise<JoinedHost> {
  await revokeToken(deps.db, id, by);
  return wakeHost(deps, id);
}

/**
 * Asks a host to replace its token. The answers to its agents' polls tell them.
 *
 * @throws AppError 404 for an unknown host, 409 for a revoked one.
 */
async function rotateHost(deps: Deps, id: string, by: Actor): Promise<JoinedHost> {
  const isAsked = await askForRotation(deps.db, id, by);
  const host = await wakeHost(deps, id);
  if (isAsked) return host;
  throw new AppError("conflict", `The token of ${host.name} is revoked: the host must join again.`);
}

/** Ends the waiting polls of a host's agents; returns the host. @throws AppError 404 for an unknown host. */
async function wakeHost(deps: Deps, id: string): Promise<JoinedHost> {
  const host = (await listHosts(deps)).find((joined) => joined.id === id);
  if (!host) throw notFound(`Host ${id}`);
  for (const agent of host.agents) deps.notifier.notify(`agent:${agent}`);
  return host;
}

/** Stops giving an agent new work, or starts again. @throws AppError 404 for an unknown agent. */
async function drainAgent(deps: Deps, id: string, drains: boolean, by: Actor): Promise<void> {
  if (!(await setDraining(deps.db, id, drains, by))) throw notFound(`Agent ${id}`);
  if (!drains) deps.notifier.notify(`agent:${id}`);
}

function describeHost(token: AgentTokenRow, agents: AgentRow[]): JoinedHost {
  const { id, name, createdAt, lastUsedAt, revokedAt, rotationAskedAt } = token;
  return {
    id,
    name,
    joined_at: timestamp(createdAt),
    last_used_at: optionalTimestamp(lastUsedAt),
    revoked_at: optionalTimestamp(revokedAt),
    ...(rotationAskedAt !== null && { rotation_asked_at: timestamp(rotationAskedAt) }),
    agents: agents.filter(({ tokenHash }) => tokenHash === id).map((agent) => agent.id),
  };
}
