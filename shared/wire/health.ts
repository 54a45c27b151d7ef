import { z } from "zod";
import { ContainerBackend, TerminalStatus } from "./executions.ts";
import { Timestamp } from "./fields.ts";

export const BreakerState = z.enum(["closed", "open", "half_open"]).meta({
  id: "BreakerState",
  description: "open: the container engine keeps failing, so submissions are refused.",
});
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

const QueueStats = z
  .object({
    pending: z.int(),
    running: z.int(),
    max_workers: z.int(),
    max_queue_size: z.int(),
  })
  .meta({ id: "QueueStats", description: "max_workers is the sum over the connected agents." });
type QueueStats = z.infer<typeof QueueStats>;

export const Health = z
  .object({
    status: z
      .enum(["healthy", "degraded"])
      .meta({ description: "degraded: no container engine is available, or the breaker is open." }),
    docker_available: z.boolean(),
    gvisor_available: z.boolean(),
    forks_available: z.literal(true).optional().meta({
      description: "An agent forks jobs; absent if none does.",
    }),
    circuit_breaker: CircuitBreaker,
    version: z.string().meta({ example: "0.1.0" }),
    production_mode: z.boolean(),
    queue_stats: QueueStats,
  })
  .meta({ id: "Health" });
export type Health = z.infer<typeof Health>;

const EngineErrors = z
  .object({
    operation: z.string().max(64).meta({ example: "create" }),
    kind: z.string().max(64).meta({ example: "timeout" }),
    count: z.int().min(0),
  })
  .meta({ id: "EngineErrors", description: "An agent's calls to its engine that failed." });

const MissingImage = z.object({ image: z.string().max(1024), reason: z.string().max(1000) }).meta({
  id: "MissingImage",
  description: "A built image that an agent needs and does not have.",
});

/** What an agent reports about its engine. */
export const EngineHealth = z
  .object({
    available: z.boolean(),
    version: z.string().nullable(),
    /** The engine's default comes first. */
    runtimes: z.array(z.string()),
    errors: z
      .array(EngineErrors)
      .max(1000)
      .optional()
      .meta({ description: "Calls to the engine that failed since the agent started." }),
    fork_problem: z.string().max(1000).nullable().optional().meta({
      description: "Why the agent forks no jobs; null if it does.",
    }),
    missing_images: z.array(MissingImage).max(1000).optional().meta({
      description: "Built images that the agent needs and does not have; absent if there are none.",
    }),
  })
  .meta({ id: "EngineHealth", description: "An agent's container engine." });
export type EngineHealth = z.infer<typeof EngineHealth>;

/** GPUs that an agent may give to jobs. */
export const GpuCount = z
  .object({ total: z.int().min(0).max(1000), free: z.int().min(0).max(1000) })
  .meta({ id: "GpuCount", description: "free: GPUs that no container uses." });
export type GpuCount = z.infer<typeof GpuCount>;

const WorkerStats = z
  .object({ max: z.int(), running: z.int(), idle: z.int() })
  .meta({ id: "WorkerStats" });
const SessionUse = z.object({ held: z.int(), max: z.int() }).meta({
  id: "SessionUse",
  description: "Sessions that an agent holds, and has room for. Left out if it takes none.",
});
const QueueUse = z.object({ pending: z.int(), max: z.int() }).meta({ id: "QueueUse" });

/** Containers that an agent started for one job type on one runtime. */
export const PoolKind = z
  .object({
    job_type: z.string().max(63),
    runtime: z.string().max(128).nullable().meta({ description: "null: the engine's default." }),
    backend: ContainerBackend.optional(),
    ready: z.int().min(0).meta({ description: "Containers that wait for a job." }),
    starting: z
      .int()
      .min(0)
      .meta({ description: "Containers that are being started ahead of a job." }),
    in_use: z.int().min(0).meta({ description: "Containers that run a job." }),
  })
  .meta({ id: "PoolKind", description: "Containers of one job type on one runtime." });
export type PoolKind = z.infer<typeof PoolKind>;

export const PoolAgent = z
  .object({
    id: z.string(),
    name: z.string(),
    version: z.string(),
    state: z.enum(["working", "idle", "unwell", "silent", "draining"]).meta({
      description:
        "working: all slots are in use; unwell: it gets no jobs; draining: an operator has ended its taking of new jobs; silent: it has not contacted the API for `liveness_s`, and no other count includes it.",
    }),
    problem: z.string().nullable().meta({ description: "Why it gets no jobs." }),
    labels: z.record(z.string(), z.string()),
    slots: z.int().meta({ description: "Executions it runs at once." }),
    running: z.int(),
    sessions: SessionUse.optional(),
    gpus: GpuCount,
    warm: z.int().meta({ description: "Containers that wait for a job, for all job types." }),
    pool: z.array(PoolKind),
    engine: EngineHealth,
    breaker: CircuitBreaker,
    last_seen: Timestamp,
  })
  .meta({
    id: "PoolAgent",
    description: "An agent that has not left. A silent one is removed after an hour.",
  });
export type PoolAgent = z.infer<typeof PoolAgent>;

export const PoolStats = z
  .object({
    workers: WorkerStats,
    queue: QueueUse,
    agents: z.array(PoolAgent),
    utilization: z.number().meta({ description: "running / max, 0 without agents." }),
  })
  .meta({ id: "PoolStats" });
export type PoolStats = z.infer<typeof PoolStats>;

const EndedCounts = z
  .record(TerminalStatus, z.int())
  .meta({ id: "EndedCounts", description: "Executions that ended since the point before." });

const HistoryPoint = z
  .object({
    at: Timestamp.meta({ description: "The end of the time that the point is for." }),
    pending: z.int().meta({ description: "Executions that waited: the most of its minutes." }),
    running: z.int().meta({ description: "Executions that ran: the most of its minutes." }),
    max_workers: z
      .int()
      .meta({ description: "What the live agents could run at once: the most of its minutes." }),
    ended: EndedCounts,
  })
  .meta({ id: "HistoryPoint" });

export const PoolHistory = z.object({ points: z.array(HistoryPoint) }).meta({
  id: "PoolHistory",
  description:
    "The oldest point first. The service is recorded once a minute. A time without a point is one in which no API ran.",
});
export type PoolHistory = z.infer<typeof PoolHistory>;

/** The answer of a probe that passes. A probe that fails answers with a problem. */
export const Probe = z.object({ status: z.literal("ok") }).meta({ id: "Probe" });
export type Probe = z.infer<typeof Probe>;
