import { z } from "zod";
import { Timestamp } from "./execution.ts";

export const BreakerState = z.enum(["closed", "open", "half_open"]);
export type BreakerState = z.infer<typeof BreakerState>;

export const CircuitBreaker = z
  .object({
    state: BreakerState,
    failure_count: z.int(),
    success_count: z.int(),
    last_failure: Timestamp.nullable(),
  })
  .meta({ id: "CircuitBreaker" });
export type CircuitBreaker = z.infer<typeof CircuitBreaker>;

export const Health = z
  .object({
    status: z
      .enum(["healthy", "degraded"])
      .meta({ description: "degraded: no container engine is available, or the breaker is open." }),
    docker_available: z.boolean(),
    gvisor_available: z.boolean(),
    circuit_breaker: CircuitBreaker,
    version: z.string().meta({ example: "0.1.0" }),
    production_mode: z.boolean(),
    queue_stats: z.object({
      pending: z.int(),
      running: z.int(),
      max_workers: z.int(),
      max_queue_size: z.int(),
    }),
  })
  .meta({ id: "Health" });
export type Health = z.infer<typeof Health>;

/** What an agent knows of its engine. */
export const EngineHealth = z.object({
  available: z.boolean(),
  version: z.string().nullable(),
  runtimes: z.array(z.string()),
});
export type EngineHealth = z.infer<typeof EngineHealth>;

export const PoolStats = z
  .object({
    workers: z.object({ max: z.int(), running: z.int(), idle: z.int() }),
    queue: z.object({ pending: z.int(), max: z.int() }),
    agents: z.array(
      z.object({
        id: z.string(),
        labels: z.record(z.string(), z.string()),
        slots: z.int(),
        running: z.int(),
        warm: z.int(),
        engine: EngineHealth,
        last_seen: Timestamp,
      }),
    ),
    utilization: z.number().meta({ description: "running / max, 0 without agents." }),
  })
  .meta({ id: "PoolStats" });
export type PoolStats = z.infer<typeof PoolStats>;
