import { expect } from "vitest";
import { Health, PoolHistory, PoolStats } from "../../../shared/wire/health.ts";
import { Usage } from "../../../shared/wire/client/usage.ts";
import { body, expectFault } from "./api.ts";
import type { Row } from "./row.ts";

const openBreaker = {
  state: "open",
  failure_count: 5,
  success_count: 0,
  last_failure: "2026-11-21T09:30:00.000Z",
} as const;

export const healthRows: Row[] = [
  {
    rule: "GET /usage says what the tenant uses, and its limits",
    async check(api) {
      await api.submit();
      const reply = await api.get("/usage");
      expect(reply.status).toBe(200);
      const { tenant, usage, limits } = Usage.strict().parse(body(reply));
      expect([tenant, usage.queued, usage.running]).toEqual(["default", 1, 0]);
      expect(new Set(Object.values(limits))).toEqual(new Set([null]));
    },
  },
  {
    rule: "GET /pool/history has at most a point for each step of the last two days, the oldest first",
    async check(api) {
      const reply = await api.get("/pool/history?hours=1&step=1");
      expect(reply.status).toBe(200);
      const { points } = PoolHistory.strict().parse(body(reply));
      expect(points.length).toBeLessThanOrEqual(61);
      const times = points.map(({ at }) => at);
      expect(times).toEqual(times.toSorted());
    },
  },
  {
    rule: "GET /pool/history refuses more than two days",
    async check(api) {
      expectFault(await api.get("/pool/history?hours=49"), "hours");
    },
  },
  {
    rule: "GET /health is degraded while no agent is connected",
    async check(api) {
      const reply = await api.get("/health");
      expect(reply.status).toBe(200);
      expect(Health.strict().parse(body(reply))).toMatchObject({
        status: "degraded",
        docker_available: false,
        gvisor_available: false,
        circuit_breaker: {
          state: "closed",
          failure_count: 0,
          success_count: 0,
          last_failure: null,
        },
        production_mode: false,
        queue_stats: { pending: 0, running: 0, max_workers: 0, max_queue_size: 100 },
      });
    },
  },
  {
    rule: "GET /health is healthy with an agent whose engine answers, and counts its queue",
    async check(api) {
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
    },
  },
  {
    rule: "GET /health is degraded when the engine is gone or the breaker is open",
    async check(api) {
      const agent = api.agent();
      await agent.poll({ engine: { available: false, version: null, runtimes: [] } });
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
    },
  },
  {
    rule: "GET /health shows the best breaker of the live agents, and no longer an agent that is gone",
    async check(api) {
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
    },
  },
  {
    rule: "GET /pool/stats shows workers, queue and agents",
    async check(api) {
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
    },
  },
];
