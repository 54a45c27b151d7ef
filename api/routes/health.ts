import { createRoute, type OpenAPIHono } from "@hono/zod-openapi";
import { Health, PoolStats } from "../../shared/wire/health.ts";
import type { Deps } from "../deps.ts";
import { health, isLive, poolStats } from "../domain/capacity.ts";
import type { AppEnv } from "../http/context.ts";
import { listAgents } from "../store/agents/agents.ts";
import { readQueueStats } from "../store/jobs/queue.ts";
import { version } from "../version.ts";
import { health as healthExample, poolStats as poolExample } from "../openapi/examples.ts";
import { json } from "../openapi/responses.ts";

export function healthRoutes(app: OpenAPIHono<AppEnv>, { config, db, now }: Deps): void {
  const liveAgents = async () =>
    (await listAgents(db)).filter((agent) => isLive(agent, config, now()));

  const getHealth = createRoute({
    method: "get",
    path: "/health",
    operationId: "getHealth",
    tags: ["Health"],
    summary: "Health of the service",
    description: "Needs no key and is not rate limited.",
    security: [],
    responses: { 200: json(Health, "Healthy or degraded.", { example: healthExample }) },
  });
  app.openapi(getHealth, async (c) => {
    const [live, queue] = await Promise.all([liveAgents(), readQueueStats(db)]);
    return c.json(health(live, queue, config, version), 200);
  });

  const getPoolStats = createRoute({
    method: "get",
    path: "/pool/stats",
    operationId: "getPoolStats",
    tags: ["Health"],
    summary: "Workers, queue and agents",
    responses: { 200: json(PoolStats, "The pool as it is now.", { example: poolExample }) },
  });
  app.openapi(getPoolStats, async (c) => {
    const [known, queue] = await Promise.all([listAgents(db), readQueueStats(db)]);
    return c.json(poolStats(known, queue, config, now()), 200);
  });
}
