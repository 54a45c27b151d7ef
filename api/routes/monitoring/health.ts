import { createRoute, z, type OpenAPIHono } from "@hono/zod-openapi";
import { Health, PoolHistory, PoolStats } from "../../../shared/wire/health.ts";
import type { Deps } from "../../deps.ts";
import { health, isLive, poolStats } from "../../domain/agents/capacity.ts";
import { historyMs, minuteMs, toHistory } from "../../domain/history.ts";
import type { AppEnv } from "../../http/context.ts";
import { listAgents } from "../../store/agents/agents.ts";
import { readQueueStats } from "../../store/statistics/queue.ts";
import { minutesSince } from "../../store/minutes.ts";
import { version } from "../../version.ts";
import {
  health as healthExample,
  poolStats as poolExample,
} from "../../openapi/examples/health.ts";
import { json, problems } from "../../openapi/responses/bodies.ts";
import { integerQuery } from "../../openapi/parameters.ts";

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
    description: "`agents` is empty for keys without the scope `monitor`.",
    responses: { 200: json(PoolStats, "The pool as it is now.", { example: poolExample }) },
  });
  app.openapi(getPoolStats, async (c) => {
    const [known, queue] = await Promise.all([listAgents(db), readQueueStats(db)]);
    const stats = poolStats(known, queue, config, now());
    const isForMonitors = c.get("caller")?.scopes.includes("monitor");
    return c.json(isForMonitors ? stats : { ...stats, agents: [] }, 200);
  });

  const getPoolHistory = createRoute({
    method: "get",
    path: "/pool/history",
    operationId: "getPoolHistory",
    tags: ["Health"],
    summary: "Queue, running executions and results of the last two days",
    request: {
      query: z.object({
        hours: integerQuery({ minimum: 1, maximum: 48, default: 48 }, "How far back."),
        step: integerQuery({ minimum: 1, maximum: 240, default: 15 }, "Minutes in a point."),
      }),
    },
    responses: {
      200: json(PoolHistory, "A point for each step in which an API ran.", {
        example: { points: [historyPoint] },
      }),
      ...problems("invalid_request"),
    },
  });
  app.openapi(getPoolHistory, async (c) => {
    const { hours, step } = c.req.valid("query");
    const span = Math.min(hours * 60 * minuteMs, historyMs);
    // One more minute, as the base of the first difference.
    const minutes = await minutesSince(db, now() - span - minuteMs);
    return c.json(toHistory(minutes, step * minuteMs), 200);
  });
}

const historyPoint: PoolHistory["points"][number] = {
  at: "2026-11-21T09:30:00.000Z",
  pending: 2,
  running: 4,
  max_workers: 4,
  ended: { succeeded: 118, failed: 3, timeout: 1, oom: 0, cancelled: 0 },
};
