import type { Probe } from "../../../shared/wire/client/probe.ts";
import type { Health, PoolStats } from "../../../shared/wire/health.ts";
import { at } from "./jobs.ts";

export const probe: Probe = { status: "ok" };

export const health: Health = {
  status: "healthy",
  docker_available: true,
  gvisor_available: false,
  forks_available: true,
  circuit_breaker: { state: "closed", failure_count: 0, success_count: 0, last_failure: null },
  version: "0.1.0",
  production_mode: false,
  queue_stats: { pending: 0, running: 1, max_workers: 4, max_queue_size: 100 },
};

export const poolStats: PoolStats = {
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
