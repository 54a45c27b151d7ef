import { expect } from "vitest";
import { Usage } from "../../../shared/wire/access.ts";
import { Health, PoolHistory, PoolStats } from "../../../shared/wire/health.ts";
import { type Api, body, type Row, test } from "./api.ts";

const openBreaker = {
  state: "open",
  failure_count: 5,
  success_count: 0,
  last_failure: "2026-11-21T09:30:00.000Z",
} as const;

export const healthRows: Row[] = [
  test("GET /usage says what the tenant uses, and its limits", async (api) => {
    await api.submit();
    const reply = await api.get("/usage");
    expect(reply.status).toBe(200);
    const { tenant, usage, limits } = Usage.strict().parse(body(reply));
    expect([tenant, usage.queued, usage.running]).toEqual(["default", 1, 0]);
    expect(new Set(Object.values(limits))).toEqual(new Set([null]));
  }),
  test("GET /pool/history has at most a point for each step of the last two days, the oldest first", async (api) => {
    const reply = await api.get("/pool/history?hours=1&step=1");
    expect(reply.status).toBe(200);
    const { points } = PoolHistory.strict().parse(body(reply));
    expect(points.length).toBeLessThanOrEqual(61);
    const times = points.map(({ at }) => at);
    expect(times).toEqual(times.toSorted());
  }),
  test("GET /health is degraded while no agent is connected", async (api) => {
    const reply = await api.get("/health");
    expect(reply.status).toBe(200);
    expect(Health.strict().parse(body(reply))).toMatchObject({
      status: "degraded",
      docker_available: false,
      gvisor_available: false,
      circuit_breaker: { state: "closed", failure_count: 0, success_count: 0, last_failure: null },
      production_mode: false,
      queue_stats: { pending: 0, running: 0, max_workers: 0, max_queue_size: 100 },
    });
  }),
  test("GET /health is healthy with an agent whose engine answers, and counts its queue", async (api) => {
    const agent = api.agent();
    await api.submit();
    await api.submit();
    const engine = { available: true, version: "26", runtimes: ["runc", "runsc"] };
    await agent.poll({ free_slots: 1, engine: { ...engine, fork_problem: null } });
    expect(body(await api.get("/health"))).toMatchObject({
      status: "healthy",
      docker_available: true,
      gvisor_available: true,
      forks_available: true,
      circuit_breaker: { state: "closed" },
      version: expect.stringMatching(/^\d+\.\d+\.\d+$/) as string,
      queue_stats: { pending: 1, running: 1, max_workers: 4 },
    });
  }),
  test("GET /health is degraded when the engine is gone or the breaker is open", async (api) => {
    const agent = await api.connected({
      engine: { available: false, version: null, runtimes: [] },
    });
    expect(body(await api.get("/health"))).toMatchObject({
      status: "degraded",
      docker_available: false,
    });
    await agent.poll({ breaker: openBreaker });
    expect(body(await api.get("/health"))).toMatchObject({
      status: "degraded",
      docker_available: true,
      circuit_breaker: openBreaker,
    });
  }),
  test("GET /health shows the best breaker of the live agents, and no longer an agent that is gone", async (api) => {
    const [bad, good] = [api.agent(), api.agent()];
    await bad.poll({ breaker: openBreaker });
    await good.poll();
    expect(body(await api.get("/health"))).toMatchObject({
      status: "healthy",
      circuit_breaker: { state: "closed" },
      queue_stats: { max_workers: 8 },
    });
    await good.leave();
    expect(body(await api.get("/health"))).toMatchObject({
      status: "degraded",
      circuit_breaker: { state: "open" },
      queue_stats: { max_workers: 4 },
    });
  }),
  test("GET /pool/stats shows workers, queue and agents", async (api) => {
    expect(PoolStats.strict().parse(body(await api.get("/pool/stats")))).toEqual({
      workers: { max: 0, running: 0, idle: 0 },
      queue: { pending: 0, max: 100 },
      agents: [],
      utilization: 0,
    });
    const agent = api.agent();
    await api.submit();
    await agent.takeJob();
    await api.submit();
    await agent.renew();
    expect(PoolStats.parse(body(await api.get("/pool/stats")))).toMatchObject({
      workers: { max: 4, running: 1, idle: 3 },
      queue: { pending: 1, max: 100 },
      agents: [
        {
          labels: { zone: "test" },
          slots: 4,
          running: 1,
          warm: 1,
          pool: [{ job_type: "default", runtime: null, ready: 1, starting: 2, in_use: 0 }],
          engine: { available: true },
        },
      ],
      utilization: 0.25,
    });
  }),
];

/** Probes for process supervisors and load balancers; unlike /health, not in the contract. */
export const probeRows: Row[] = [
  test("The probes are 200 while the service serves, with an agent or without", async (api) => {
    for (const path of ["/health/live", "/health/ready"]) {
      const reply = await api.get(path);
      expect([reply.status, body(reply)]).toEqual([200, { status: "ok" }]);
      await api.agent().poll({ engine: { available: false, version: null, runtimes: [] } });
      expect((await api.get(path)).status).toBe(200);
    }
  }),
];

type Series = Map<string, number>;

/** Every series of a scrape, by name and labels. Checks each line against the text format. */
async function scrape(api: Api): Promise<Series> {
  const reply = await api.get("/metrics");
  expect(reply.status).toBe(200);
  expect(reply.headers.get("Content-Type")).toBe("text/plain; version=0.0.4; charset=utf-8");
  const lines = reply.text.split("\n").filter((line) => line !== "");
  const found: Series = new Map();
  for (const line of lines.filter((line) => !line.startsWith("#"))) {
    const [, series = "", value] =
      /^([a-z0-9_:]+(?:\{(?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*\})?) (\S+)$/.exec(line) ?? [];
    expect([line, found.has(series)]).toEqual([`${series} ${value}`, false]);
    found.set(series, Number(value));
  }
  const types = lines.filter((line) => line.startsWith("# TYPE "));
  expect(new Set(types).size).toBe(types.length);
  return found;
}

/** The increase of each series that changed during some work. */
async function added(api: Api, work: () => Promise<unknown>): Promise<Record<string, number>> {
  const before = await scrape(api);
  await work();
  const after = await scrape(api);
  const grown = [...after].map(([name, n]) => [name, n - (before.get(name) ?? 0)] as const);
  return Object.fromEntries(grown.filter(([, n]) => n !== 0));
}

const phase = (name: string, rest: string): string =>
  `airlock_execution_phase_seconds${rest.replace("{", `{job_type="ml",phase="${name}"`)}`;

const requests = (route: string, status: number): string =>
  `airlock_http_request_duration_seconds_count{method="GET",route="${route}",status="${status}"}`;

const failed = (operation: string, kind: string): string =>
  `airlock_engine_errors_total{agent="scripted",operation="${operation}",kind="${kind}"}`;

/** Metrics for monitoring; not in the contract. */
export const metricsRows: Row[] = [
  test("GET /metrics counts executions by job type and status, and their phases", async (api) => {
    const agent = api.agent();
    const changes = await added(api, async () => {
      await api.submit({ job_type: "ml" });
      const { lease_id } = await agent.takeJob();
      await agent.result(lease_id);
    });
    expect(changes).toMatchObject({
      'airlock_executions_total{job_type="ml",status="succeeded"}': 1,
      [phase("execution", '_bucket{,le="2.5"}')]: 1,
      [phase("execution", '_bucket{,le="+Inf"}')]: 1,
      [phase("execution", "_sum{}")]: expect.closeTo(1.5) as number,
      [phase("execution", "_count{}")]: 1,
      [phase("queue", "_count{}")]: 1,
      [phase("startup", "_count{}")]: 1,
      [phase("total", "_count{}")]: 1,
    });
    expect(changes).not.toHaveProperty([phase("execution", '_bucket{,le="1"}')]);
    expect(changes).not.toHaveProperty([phase("dep_install", "_count{}")]);
  }),
  test("GET /metrics counts leases that brought no result, retries and dead letters", async (api) => {
    const agent = api.agent();
    const error = { type: "docker_error", message: "", phase: "startup" } as const;
    const changes = await added(api, async () => {
      await api.submit({ job_type: "ml" });
      for (let attempt = 0; attempt < 2; attempt++) {
        const { lease_id } = await agent.takeJob();
        await agent.post(lease_id, "release", { error });
        agent.held.delete(lease_id);
      }
    });
    expect(changes).toMatchObject({
      'airlock_leases_lost_total{job_type="ml",reason="released"}': 2,
      'airlock_retries_total{job_type="ml"}': 1,
      'airlock_executions_total{job_type="ml",status="failed"}': 1,
      airlock_dead_letters: 1,
    });
  }),
  test("GET /metrics shows the present queue and agents", async (api) => {
    const agent = api.agent();
    agent.maxSessions = 2;
    await api.post("/sessions", {});
    await agent.takeSession();
    await api.submit();
    await agent.takeJob();
    await api.submit();
    await api.submit();
    await agent.renew({ breaker: { ...agent.status().breaker, state: "open" } });
    const series = await scrape(api);
    expect(Object.fromEntries(series)).toMatchObject({
      airlock_queued_executions: 2,
      airlock_wanted_slots: 3,
      airlock_queue_capacity: 100,
      'airlock_agents{breaker="open"}': 1,
      'airlock_agents{breaker="closed"}': 0,
      'airlock_engines_available{agent="scripted"}': 1,
      'airlock_slots{agent="scripted"}': 4,
      'airlock_warm_containers{agent="scripted"}': 1,
      'airlock_pool_containers{agent="scripted",job_type="default",state="starting"}': 2,
      'airlock_running_executions{agent="scripted"}': 1,
      'airlock_sessions{agent="scripted"}': 1,
      'airlock_session_capacity{agent="scripted"}': 2,
    });
    expect(series.get("airlock_oldest_queued_age_seconds")).toBeGreaterThanOrEqual(0);
  }),
  test("GET /metrics counts the failed engine calls that an agent reports, and nothing for an agent that reports none", async (api) => {
    const told = { available: true, version: "20.10", runtimes: ["runc"] };
    const count = { operation: "create", kind: "unavailable", count: 2 };
    const agents = [api.agent(), api.agent(), api.agent()];
    await agents[0]!.renew({ engine: { ...told, errors: [count] } });
    const another = { operation: "pull", kind: "of-a-later-version", count: 1 };
    await agents[1]!.renew({ engine: { ...told, errors: [count, another] } });
    await agents[2]!.renew({ engine: told });
    const series = Object.fromEntries(await scrape(api));
    expect(series).toMatchObject({
      [failed("create", "unavailable")]: 4,
      [failed("pull", "of-a-later-version")]: 1,
      'airlock_engines_available{agent="scripted"}': 3,
    });
  }),
  {
    rule: "GET /metrics shows requests by endpoint, method and status, and the process",
    only: { on: "node", why: "an isolate comes and goes, and a scrape meets any of them" },
    async check(api) {
      const changes = await added(api, async () => {
        await api.get("/executions/x");
        await api.get("/executions/y");
        await api.get("/nowhere/z");
      });
      expect(changes).toMatchObject({
        [requests("/executions/{id}", 404)]: 2,
        [requests("none", 404)]: 1,
        [requests("/metrics", 200)]: 1,
      });
      expect((await scrape(api)).get("process_resident_memory_bytes")).toBeGreaterThan(1e6);
    },
  },
  {
    rule: "GET /metrics of a worker shows the metrics of the database and none of an isolate",
    only: { on: "workerd", why: "a process has metrics of its own" },
    async check(api) {
      const own = [...(await scrape(api)).keys()].filter((series) =>
        /^(process_|nodejs_|airlock_http_|airlock_store_)/.test(series),
      );
      expect(own).toEqual([]);
    },
  },
];
