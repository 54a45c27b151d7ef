import { createRoute, type OpenAPIHono, z } from "@hono/zod-openapi";
import { and, isNull, min } from "drizzle-orm";
import type { Config } from "../../shared/config/config.ts";
import { listAgents } from "../agents/fleet.ts";
import { type AgentReport, isLive, type QueueStats, withPublicPool } from "../agents/placement.ts";
import type { Deps } from "../deps.ts";
import { storedFileBytes } from "../files/sql.ts";
import type { AppEnv } from "../http/context.ts";
import { publicName } from "../jobs/environment.ts";
import { readQueueStats } from "../jobs/sql.ts";
import type { Database } from "../store/database.ts";
import { counts, durations, executions, isInLine } from "../store/schema.ts";
import { databaseBytes } from "../store/tenant.ts";
import { version } from "../version.ts";

const getMetrics = createRoute({
  method: "get",
  path: "/metrics",
  operationId: "getMetrics",
  summary: "Metrics for Prometheus",
  description:
    "Text format 0.0.4. Metrics from the database are the same whichever process answers. Metrics of requests, and those that begin with `process_` or `nodejs_`, describe the answering process and do not exist on Workers.",
  responses: {
    200: {
      description: "Metrics.",
      content: {
        "text/plain": {
          schema: z.string(),
          example: 'airlock_executions_total{job_type="default",status="succeeded"} 42\n',
        },
      },
    },
  },
});

export function metricsRoute(app: OpenAPIHono<AppEnv>, deps: Deps): void {
  const { config, db, now, processMetrics } = deps;
  app.openapi(getMetrics, async (c) => {
    const [database, files, counts, queue, known, own] = await Promise.all([
      databaseBytes(db),
      storedFileBytes(db),
      readCounts(db),
      readQueueStats(db),
      listAgents(db),
      processMetrics?.text() ?? "",
    ]);
    const live = known.filter((agent) => isLive(agent, config, now()));
    const agents = live.map((agent) => withPublicPool(agent, config));
    const bytes = { databaseBytes: database, fileBytes: files };
    const named = <R extends { jobType: string }>(rows: R[]): R[] =>
      rows.map((row) => ({ ...row, jobType: publicName(config, row.jobType) }));
    const { totals, durations } = counts;
    const shown = { ...counts, totals: named(totals), durations: named(durations) };
    const stored = storedFamilies(
      { counts: shown, queue, agents, ...bytes, version, now: now() },
      config,
    );
    return c.text(familiesText(stored) + own, 200, { "Content-Type": textFormat });
  });
}

interface Stored {
  counts: Counts;
  queue: QueueStats;
  /** The live agents. */
  agents: AgentReport[];
  /** Bytes, without free pages. */
  databaseBytes: number;
  fileBytes: number;
  version: string;
  now: number;
}

/** Metrics from the database. Every API process gives the same values. */
function storedFamilies(stored: Stored, config: Config): Family[] {
  const { counts, queue, agents, version, now } = stored;
  const age = counts.oldestQueuedAt === null ? 0 : (now - counts.oldestQueuedAt) / 1000;
  const ofAgents = (name: string, help: string, value: (agent: AgentReport) => number) =>
    gauge(name, help, perAgent(agents, value));
  return [
    gauge("airlock_build_info", "The version that answers.", [{ labels: { version }, value: 1 }]),
    single("airlock_queued_executions", "Executions that wait for a worker.", queue.pending),
    single(
      "airlock_wanted_slots",
      "Executions that wait or run: the slots that they take or would take.",
      queue.pending + queue.running,
    ),
    single(
      "airlock_queue_capacity",
      "Executions that may wait: max_queue_size.",
      config.max_queue_size,
    ),
    single(
      "airlock_oldest_queued_age_seconds",
      "Age of the oldest execution that waits.",
      Math.max(0, age),
    ),
    counter("airlock_executions_total", "Executions that have ended.", counts, "executions", {
      label: "status",
    }),
    phases(counts),
    counter("airlock_leases_lost_total", "Leases that brought no result.", counts, "leases", {
      label: "reason",
    }),
    counter("airlock_retries_total", "Executions queued once more.", counts, "retries"),
    single(
      "airlock_database_bytes",
      "Bytes of the database, free pages left out.",
      stored.databaseBytes,
    ),
    single(
      "airlock_file_bytes",
      "Bytes of the uploaded files: at most max_files_bytes.",
      stored.fileBytes,
    ),
    single(
      "airlock_dead_letters",
      "Entries of the dead letter queue.",
      total(counts, "dead_letters"),
    ),
    gauge(
      "airlock_agents",
      "Live agents by the state of their circuit breaker.",
      byBreaker(agents),
    ),
    ofAgents(
      "airlock_engines_available",
      "Live agents whose container engine answers.",
      ({ engine }) => Number(engine.available),
    ),
    {
      name: "airlock_engine_errors_total",
      type: "counter",
      help: "Calls to its container engine that failed, since the agent started.",
      samples: byFailure(agents),
    },
    ofAgents("airlock_slots", "Executions that an agent runs at once.", ({ slots }) => slots),
    ofAgents(
      "airlock_running_executions",
      "Executions leased to an agent.",
      ({ id }) => queue.runningByAgent.get(id) ?? 0,
    ),
    ofAgents(
      "airlock_sessions",
      "Sessions that an agent holds.",
      ({ id }) => queue.sessionsByAgent.get(id) ?? 0,
    ),
    ofAgents(
      "airlock_session_capacity",
      "Sessions that an agent holds or has room for.",
      ({ maxSessions }) => maxSessions ?? 0,
    ),
    ofAgents("airlock_warm_containers", "Containers that wait for a job.", ({ warm }) => warm),
    gauge("airlock_pool_containers", "Containers of the warm pools.", byKind(agents)),
  ];
}

const single = (name: string, help: string, value: number) => gauge(name, help, [{ value }]);

function gauge(name: string, help: string, samples: Sample[]): Family {
  return { name, help, type: "gauge", samples };
}

function counter(
  name: string,
  help: string,
  { totals }: Counts,
  counted: string,
  { label }: { label?: string } = {},
): Family {
  const samples = totals
    .filter((row) => row.name === counted)
    .map((row) => ({
      labels: { job_type: row.jobType, ...(label !== undefined && { [label]: row.label }) },
      value: row.n,
    }));
  return { name, help, type: "counter", samples: addedUp(samples) };
}

function total({ totals }: Counts, counted: string): number {
  return totals.filter(({ name }) => name === counted).reduce((sum, { n }) => sum + n, 0);
}

function byBreaker(agents: AgentReport[]): Sample[] {
  return ["closed", "half_open", "open"].map((state) => ({
    labels: { breaker: state },
    value: agents.filter(({ breaker }) => breaker.state === state).length,
  }));
}

function perAgent(agents: AgentReport[], value: (agent: AgentReport) => number): Sample[] {
  return addedUp(agents.map((agent) => ({ labels: { agent: agent.name }, value: value(agent) })));
}

/** Containers of the pools by agent, job type and state, summed over everything else. */
function byKind(agents: AgentReport[]): Sample[] {
  return addedUp(
    agents.flatMap(({ name: agent, pool }) =>
      pool.flatMap(({ job_type, backend, ready, starting, in_use }) =>
        Object.entries({ ready, starting, in_use }).map(([state, value]) => ({
          labels: { agent, job_type, ...(backend === "zygote" && { backend }), state },
          value,
        })),
      ),
    ),
  );
}

/** Failed engine calls by agent, call and kind. */
function byFailure(agents: AgentReport[]): Sample[] {
  return addedUp(
    agents.flatMap(({ name: agent, engine }) =>
      (engine.errors ?? []).map(({ operation, kind, count: value }) => ({
        labels: { agent, operation, kind },
        value,
      })),
    ),
  );
}

/** One sample for each set of labels; agents with the same name are added up. */
function addedUp(samples: Required<Omit<Sample, "suffix">>[]): Sample[] {
  const sums = new Map<string, Sample>();
  for (const { labels, value } of samples) {
    const key = JSON.stringify(labels);
    sums.set(key, { labels, value: (sums.get(key)?.value ?? 0) + value });
  }
  return [...sums.values()];
}

function phases({ durations }: Counts): Family {
  const series = Map.groupBy(durations, ({ jobType, phase }) => `${phase} ${jobType}`);
  const samples = [...series.values()].flatMap((rows): Sample[] => {
    const { jobType: job_type, phase } = rows[0]!;
    const labels = { job_type, phase };
    const upTo = (boundMs: number) =>
      rows.filter(({ leMs }) => leMs <= boundMs).reduce((sum, { n }) => sum + n, 0);
    const sumMs = rows.reduce((sum, row) => sum + row.sumMs, 0);
    return [
      ...phaseBoundsMs.map((bound): Sample => ({
        suffix: "_bucket",
        labels: { ...labels, le: String(bound / 1000) },
        value: upTo(bound),
      })),
      { suffix: "_bucket", labels: { ...labels, le: "+Inf" }, value: upTo(Infinity) },
      { suffix: "_sum", labels, value: sumMs / 1000 },
      { suffix: "_count", labels, value: upTo(Infinity) },
    ];
  });
  return {
    name: "airlock_execution_phase_seconds",
    help: "Time of ended executions by phase: queue, startup, dep_install, execution, total.",
    type: "histogram",
    samples,
  };
}

/** A Prometheus metric with its samples, for text format 0.0.4. */
interface Family {
  name: string;
  type: "counter" | "gauge" | "histogram";
  help: string;
  samples: Sample[];
}

interface Sample {
  /** Suffix of the name, for the parts of a histogram. */
  suffix?: "_bucket" | "_sum" | "_count";
  labels?: Record<string, string>;
  value: number;
}

const textFormat = "text/plain; version=0.0.4; charset=utf-8";

export function familiesText(families: Family[]): string {
  return families.map(familyText).join("");
}

function familyText({ name, type, help, samples }: Family): string {
  const lines = samples.map(
    ({ suffix = "", labels = {}, value }) => `${name}${suffix}${labelsText(labels)} ${value}\n`,
  );
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join("")}`;
}

function labelsText(labels: Record<string, string>): string {
  const parts = Object.entries(labels).map(([label, value]) => `${label}="${escaped(value)}"`);
  return parts.length === 0 ? "" : `{${parts.join(",")}}`;
}

function escaped(value: string): string {
  return value.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}

/** Upper bounds of a phase's buckets; the trigger that fills them has the same numbers. */
export const phaseBoundsMs = [
  5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000, 1_800_000,
  3_600_000,
];

/** Triggers update these counts at each change, so reading them does not get slower with a long history. */
interface Counts {
  totals: (typeof counts.$inferSelect)[];
  durations: (typeof durations.$inferSelect)[];
  /** Epoch ms; null if nothing waits. A job with `run_at` does not count. */
  oldestQueuedAt: number | null;
}

export async function readCounts(db: Database): Promise<Counts> {
  const [totals, phases, oldest] = await Promise.all([
    db.orm.select().from(counts),
    db.orm.select().from(durations).orderBy(durations.jobType, durations.phase, durations.leMs),
    db.orm
      .select({ createdAt: min(executions.createdAt) })
      .from(executions)
      .where(and(isInLine, isNull(executions.runAt))),
  ]);
  return { totals, durations: phases, oldestQueuedAt: oldest[0]?.createdAt ?? null };
}
