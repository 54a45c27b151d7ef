import { createRoute, type OpenAPIHono, z } from "@hono/zod-openapi";
import { asc, gte, lt, sql } from "drizzle-orm";
import { describeError } from "../../shared/log-line.ts";
import { terminalStatuses } from "../../shared/wire/executions.ts";
import { Health, PoolHistory, PoolStats, Probe } from "../../shared/wire/health.ts";
import { listAgents } from "../agents/fleet.ts";
import { health, isLive, poolStats } from "../agents/placement.ts";
import type { Deps } from "../deps.ts";
import { unavailable } from "../errors.ts";
import { within } from "../http/answer.ts";
import type { AppEnv } from "../http/context.ts";
import { at } from "../http/examples.ts";
import { integerQuery, json, problem } from "../http/responses.ts";
import { readQueueStats } from "../jobs/sql.ts";
import { type Database, transact } from "../store/database.ts";
import { agents, counts, minutes } from "../store/schema.ts";
import { query } from "../store/statement.ts";
import { version } from "../version.ts";

export function healthRoutes(app: OpenAPIHono<AppEnv>, { config, db, now }: Deps): void {
  const liveAgents = async () =>
    (await listAgents(db)).filter((agent) => isLive(agent, config, now()));

  const getHealth = createRoute({
    method: "get",
    path: "/health",
    operationId: "getHealth",
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
    summary: "Workers, queue and agents",
    description: "`agents` is empty for keys without the scope `monitor`.",
    responses: { 200: json(PoolStats, "The pool as it is now.", { example: poolStatsExample }) },
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

export const minuteMs = 60_000;
/** How far back the history goes. */
export const historyMs = 48 * 60 * minuteMs;

/**
 * Puts recorded minutes, the oldest first, into points of `stepMs`, each named by its end. The first
 * minute has no predecessor to count from, so it opens no point.
 */
export function toHistory([first, ...minutes]: Minute[], stepMs: number): PoolHistory {
  let before = first;
  const points = new Map<number, PoolHistory["points"][number]>();
  for (const minute of minutes) {
    const end = Math.ceil(minute.at / stepMs) * stepMs;
    const point = points.get(end) ?? {
      at: new Date(end).toISOString(),
      pending: 0,
      running: 0,
      max_workers: 0,
      ended: { succeeded: 0, failed: 0, timeout: 0, oom: 0, cancelled: 0 },
    };
    point.pending = Math.max(point.pending, minute.pending);
    point.running = Math.max(point.running, minute.running);
    point.max_workers = Math.max(point.max_workers, minute.slots);
    for (const status of terminalStatuses) {
      point.ended[status] += Math.max(
        0,
        (minute.ended[status] ?? 0) - (before?.ended[status] ?? 0),
      );
    }
    points.set(end, point);
    before = minute;
  }
  return { points: [...points.values()] };
}

type Minute = typeof minutes.$inferSelect;

/** Records a minute, unless another process has, and removes minutes before a time. */
export async function addMinute(
  db: Database,
  { at, pending, running, slots }: Omit<Minute, "ended">,
  keepSince: number,
): Promise<void> {
  await transact(db, [
    sql`insert or ignore into ${minutes} (at, pending, running, slots, ended)
        select ${at}, ${pending}, ${running}, ${slots}, coalesce(json_group_object(label, n), '{}')
        from (select label, sum(n) as n from ${counts} where name = 'executions' group by label)`,
    query.delete(minutes).where(lt(minutes.at, keepSince)),
  ]);
}

/** The newest minute that is recorded; undefined if there is none. */
export async function lastMinute(db: Database): Promise<number | undefined> {
  const [row] = await db.orm.select({ at: sql<number | null>`max(${minutes.at})` }).from(minutes);
  return row?.at ?? undefined;
}

/** The minutes from a time on, the oldest first. */
export async function minutesSince(db: Database, time: number): Promise<Minute[]> {
  return db.orm.select().from(minutes).where(gte(minutes.at, time)).orderBy(asc(minutes.at));
}

const probe: Probe = { status: "ok" };

const healthExample: Health = {
  status: "healthy",
  docker_available: true,
  gvisor_available: false,
  forks_available: true,
  circuit_breaker: { state: "closed", failure_count: 0, success_count: 0, last_failure: null },
  version: "0.1.0",
  production_mode: false,
  queue_stats: { pending: 0, running: 1, max_workers: 4, max_queue_size: 100 },
};

export const poolStatsExample: PoolStats = {
  workers: { max: 4, running: 1, idle: 3 },
  queue: { pending: 0, max: 100 },
  agents: [
    {
      id: "019aa5ef-0d3c-7b51-a6f0-91c2d3e4f506",
      name: "office-1",
      version: "0.1.0",
      state: "idle",
      problem: null,
      labels: { zone: "office" },
      slots: 4,
      running: 1,
      gpus: { total: 2, free: 1 },
      warm: 3,
      pool: [
        {
          job_type: "default",
          runtime: "runsc",
          backend: "engine",
          ready: 3,
          starting: 0,
          in_use: 1,
        },
      ],
      engine: { available: true, version: "20.10.24", runtimes: ["runc", "runsc"] },
      breaker: { state: "closed", failure_count: 0, success_count: 0, last_failure: null },
      last_seen: at("29.500"),
    },
  ],
  utilization: 0.25,
};

/** Milliseconds that a probe waits for the database. */
const answerWithinMs = 2000;

const silent = "The database does not answer.";
const stopping = "The service is stopping.";

const getLiveness = createRoute({
  method: "get",
  path: "/health/live",
  operationId: "getLiveness",
  summary: "Liveness: whether the process serves",
  description: "Checks only the process itself. Needs no key and is not rate limited.",
  security: [],
  responses: { 200: json(Probe, "It serves.", { example: probe }) },
});

const getReadiness = createRoute({
  method: "get",
  path: "/health/ready",
  operationId: "getReadiness",
  summary: "Readiness: whether requests should be sent here",
  description:
    "200 if the database answers and the service is not stopping. Agents and their engines are not checked: jobs may be submitted without them. Needs no key and is not rate limited.",
  security: [],
  responses: {
    200: json(Probe, "It can take requests.", { example: probe }),
    503: problem("unavailable", {
      detail: silent,
      error: { type: "service_unavailable", message: silent, phase: "startup" },
    }),
  },
});

/** Probes for a process supervisor and for a load balancer. */
export function probeRoutes(app: OpenAPIHono<AppEnv>, { db, isStopping }: Deps): void {
  app.openapi(getLiveness, (c) => c.json({ status: "ok" } as const, 200));

  app.openapi(getReadiness, async (c) => {
    if (isStopping()) throw unavailable(stopping, 5);
    try {
      await ping(db);
    } catch (error) {
      c.get("log").warn("not ready: {reason}", { reason: describeError(error) });
      throw unavailable(silent, 5);
    }
    return c.json({ status: "ok" } as const, 200);
  });
}

/** Reads from the schema. Rejects if the database is out of reach or was never migrated. */
async function ping(db: Database): Promise<void> {
  const read = db.orm.select({ id: agents.id }).from(agents).limit(1);
  const found = await within(answerWithinMs, read.execute());
  if (!found) throw new Error(`no answer in ${answerWithinMs} ms`);
}
