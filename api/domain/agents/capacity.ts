import type {
  BreakerState,
  CircuitBreaker,
  GpuCount,
  Health,
  PoolAgent,
  PoolStats,
} from "../../../shared/wire/health.ts";
import type { Accepted } from "../../../shared/wire/agent/lease.ts";
import type { Config } from "../../../shared/config/config.ts";

/** What the API knows about an agent process. */
export interface AgentReport {
  id: string;
  name: string;
  version: string;
  labels: Record<string, string>;
  accepts: Accepted;
  slots: number;
  gpus: GpuCount;
  warm: number;
  /** Sessions that it holds or has room for; null or 0 if it takes none. */
  maxSessions: number | null;
  pool: PoolStats["agents"][number]["pool"];
  engine: PoolStats["agents"][number]["engine"];
  breaker: CircuitBreaker;
  /** Images that jobs may need and that its engine has. */
  images: string[];
  lastSeenAt: number;
  /** When an operator drained the agent: it takes no new work since. */
  drainingAt: number | null;
}

/** Whether an agent contacted the API within `liveness_s`. The lease of a silent agent may still hold (`lease_ttl_s`). */
export function isLive(
  { lastSeenAt }: Pick<AgentReport, "lastSeenAt">,
  { liveness_s }: Pick<Config, "liveness_s">,
  now: number,
): boolean {
  return now - lastSeenAt <= liveness_s * 1000;
}

export interface Unavailable {
  detail: string;
  retryAfterS: number;
}

/**
 * Why an execution of this mode should not be accepted now; undefined if it should. This depends on
 * the breakers of the live agents or, if no agent is live, on the last reports of the others.
 */
export function whyUnavailable(
  mode: "sync" | "async",
  known: AgentReport[],
  config: Config,
  now: number,
): Unavailable | undefined {
  const live = known.filter((agent) => isLive(agent, config, now));
  if (mode === "sync" && live.length > 0 && live.every((agent) => agent.drainingAt !== null)) {
    return {
      detail:
        "Every agent is draining. Resume one (POST /agents/{id}/resume), or submit to /execute/async.",
      retryAfterS: 30,
    };
  }
  const deciding = live.length > 0 ? live : known;
  if (deciding.length > 0 && deciding.every((agent) => agent.breaker.state === "open")) {
    return {
      detail: "The circuit breaker of every agent is open: their container engines keep failing.",
      retryAfterS: 30,
    };
  }
  if (mode === "sync" && live.length === 0) {
    return {
      detail: "No agent is connected. Start one (npm run agent), or submit to /execute/async.",
      retryAfterS: 5,
    };
  }
  return undefined;
}

const noBreaker: CircuitBreaker = {
  state: "closed",
  failure_count: 0,
  success_count: 0,
  last_failure: null,
};
const bestFirst: readonly BreakerState[] = ["closed", "half_open", "open"];

interface Queue {
  pending: number;
  running: number;
  runningByAgent: Map<string, number>;
  sessionsByAgent: Map<string, number>;
}

/** The health record. Each field shows the best value among the live agents. */
export function health(live: AgentReport[], queue: Queue, config: Config, version: string): Health {
  const docker = live.some((agent) => agent.engine.available);
  const [best] = live
    .map((agent) => agent.breaker)
    .sort((a, b) => bestFirst.indexOf(a.state) - bestFirst.indexOf(b.state));
  const breaker = best ?? noBreaker;
  return {
    status: docker && breaker.state !== "open" ? "healthy" : "degraded",
    docker_available: docker,
    // A runtime whose name starts with runsc, for example runsc-kvm, is gVisor, as for container_runtime.
    gvisor_available: live.some(({ engine }) =>
      engine.runtimes.some((name) => name.startsWith("runsc")),
    ),
    ...(live.some(({ engine }) => engine.available && engine.fork_problem === null) && {
      forks_available: true,
    }),
    circuit_breaker: breaker,
    version,
    production_mode: config.production_mode,
    queue_stats: {
      pending: queue.pending,
      running: queue.running,
      max_workers: totalSlots(live),
      max_queue_size: config.max_queue_size,
    },
  };
}

/** @param known Agents that have not left, silent ones included. */
export function poolStats(
  known: AgentReport[],
  queue: Queue,
  config: Config,
  now: number,
): PoolStats {
  const live = known.filter((agent) => isLive(agent, config, now));
  const max = totalSlots(live);
  const running = Math.min(queue.running, max);
  return {
    workers: { max, running, idle: max - running },
    queue: { pending: queue.pending, max: config.max_queue_size },
    agents: known.map((agent) => poolAgent(agent, queue, live.includes(agent))),
    utilization: max === 0 ? 0 : running / max,
  };
}

function poolAgent(agent: AgentReport, queue: Queue, isHeardOf: boolean): PoolAgent {
  const running = queue.runningByAgent.get(agent.id) ?? 0;
  const held = queue.sessionsByAgent.get(agent.id) ?? 0;
  const max = agent.maxSessions ?? 0;
  const { id, name, version, labels, slots, gpus, warm, pool, engine, breaker } = agent;
  const problem = isHeardOf
    ? whyUnwell(agent)
    : "It has not contacted the API for longer than liveness_s.";
  const state = stateOf(agent, running, isHeardOf);
  const last_seen = new Date(agent.lastSeenAt).toISOString();
  const told = { id, name, version, labels, slots, gpus, warm, pool, engine, breaker };
  const sessions = max > 0 && { sessions: { held, max } };
  return { ...told, state, problem, running, ...sessions, last_seen };
}

function stateOf(agent: AgentReport, running: number, isHeardOf: boolean): PoolAgent["state"] {
  if (!isHeardOf) return "silent";
  if (agent.drainingAt !== null) return "draining";
  if (whyUnwell(agent) !== null) return "unwell";
  return running < agent.slots ? "idle" : "working";
}

function whyUnwell({ drainingAt, engine, breaker }: AgentReport): string | null {
  if (drainingAt !== null)
    return "An operator drains it: it finishes its jobs and takes no new ones.";
  if (breaker.state === "open") return "Its circuit breaker is open: its engine keeps failing.";
  return engine.available ? null : "Its container engine does not answer.";
}

/** Executions that these agents run at once. */
export function totalSlots(agents: Pick<AgentReport, "slots">[]): number {
  return agents.reduce((sum, agent) => sum + agent.slots, 0);
}
