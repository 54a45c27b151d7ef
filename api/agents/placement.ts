import type { Config } from "../../shared/config/config.ts";
import { matchesPattern } from "../../shared/names.ts";
import type { InputWay } from "../../shared/wire/files.ts";
import type {
  BreakerState,
  CircuitBreaker,
  Health,
  PoolAgent,
  PoolStats,
} from "../../shared/wire/health.ts";
import type { Build, JobTypeView } from "../../shared/wire/job-types.ts";
import type { Accepted } from "../../shared/wire/leases.ts";
import {
  awaitsImage,
  type BuiltImage,
  type Environment,
  imageOf,
  languagesOf,
  publicName,
  specOf,
  stepsOf,
} from "../jobs/environment.ts";

/** Agents that could take work now: live, with an engine that answers and a closed or half-open breaker. */
export function servingAgents<A extends AgentReport>(known: A[], config: Config, now: number): A[] {
  return known.filter((agent) => isLive(agent, config, now) && isAtWork(agent));
}

const isAtWork = ({ drainingAt, engine, breaker }: AgentReport): boolean =>
  drainingAt === null && engine.available && breaker.state !== "open";

/** Images that at least one agent has. */
export function presentImages(agents: AgentReport[]): Set<string> {
  return new Set(agents.flatMap((agent) => agent.images));
}

/** Whether an agent has the labels that a job type requires. */
function hasLabels({ labels }: Pick<AgentReport, "labels">, { jobType }: Environment): boolean {
  return Object.entries(jobType.labels).every(([name, value]) => labels[name] === value);
}

/** Whether an agent's host has the labels and GPUs that a job type requires. The image is not checked. */
export function isEquipped(
  agent: Pick<AgentReport, "labels" | "gpus">,
  environment: Environment,
): boolean {
  return hasLabels(agent, environment) && agent.gpus.total >= environment.jobType.gpus;
}

/** Whether an agent's operator accepts jobs of a type. */
export function accepts(
  { accepts }: Pick<AgentReport, "accepts">,
  { jobType }: Environment,
): boolean {
  const { job_types } = accepts;
  return job_types?.some((pattern) => matchesPattern(pattern, jobType.name)) ?? true;
}

/** What an agent can do that gives jobs their inputs this way: who mounts files can also send them. */
export function waysOf(way: InputWay | undefined): InputWay[] {
  if (way === undefined) return [];
  return way === "mount" ? ["frames", "mount"] : ["frames"];
}

/** Whether an agent can give a job its stdin, args and files. */
export function givesInputs(
  { accepts }: Pick<AgentReport, "accepts">,
  inputs: InputWay | null,
): boolean {
  return inputs === null || waysOf(accepts.inputs).includes(inputs);
}

/** Whether one agent can give jobs their inputs in every way that another can. */
function givesAll(
  { accepts }: Pick<AgentReport, "accepts">,
  other: Pick<AgentReport, "accepts">,
): boolean {
  const ways = waysOf(accepts.inputs);
  return waysOf(other.accepts.inputs).every((way) => ways.includes(way));
}

/** Whether an agent takes a job of a type now, whatever other agents there are. */
export function takesNow(
  agent: AgentReport,
  environment: Environment,
  inputs: InputWay | null,
  config: Config,
  now: number,
): boolean {
  return (
    isLive(agent, config, now) &&
    isAtWork(agent) &&
    agent.slots > 0 &&
    agent.gpus.free >= environment.jobType.gpus &&
    agent.images.includes(imageOf(environment)) &&
    givesInputs(agent, inputs) &&
    accepts(agent, environment) &&
    canRun(agent, environment, [])
  );
}

/** The properties of an agent that decide which jobs it may get. */
export type Placed = Pick<AgentReport, "labels" | "gpus" | "images" | "accepts">;

/** A job that no agent accepts goes to an agent that refuses it, so that its record says why. */
export function mayRun(agent: Placed, environment: Environment, serving: AgentReport[]): boolean {
  if (!canRun(agent, environment, serving)) return false;
  return (
    accepts(agent, environment) ||
    !serving.some((other) => accepts(other, environment) && canRun(other, environment, serving))
  );
}

/**
 * The same for builds. If no agent with the labels accepts builds and images can be shared, any other
 * agent may build for them.
 */
export function mayBuild(
  agent: Pick<AgentReport, "labels" | "accepts">,
  environment: Environment,
  serving: AgentReport[],
  canShareImages: boolean,
): boolean {
  const isWilling = acceptsBuild(agent, environment);
  // An agent of an older version would not refuse it, and build it with the rights of an operator's.
  if (environment.jobType.made && !isWilling) return false;
  const labelled = serving.filter((other) => hasLabels(other, environment));
  if (hasLabels(agent, environment)) {
    if (isWilling) return true;
    const others = canShareImages ? serving : labelled;
    return !others.some((other) => acceptsBuild(other, environment));
  }
  const isNeeded = !labelled.some((other) => acceptsBuild(other, environment));
  return canShareImages && isWilling && labelled.length > 0 && isNeeded;
}

function acceptsBuild(agent: Pick<AgentReport, "accepts">, environment: Environment): boolean {
  const { builds, tenant_builds = false } = agent.accepts;
  const isAllowed = environment.jobType.made === undefined || tenant_builds;
  return builds && isAllowed && accepts(agent, environment);
}

/**
 * Whether an agent can run jobs of a type: it has the image, or it may try to pull it. It may try if no
 * agent that can give jobs the same inputs has the image. A built image cannot be pulled.
 */
function canRun(agent: Placed, environment: Environment, serving: AgentReport[]): boolean {
  if (!isEquipped(agent, environment)) return false;
  const image = imageOf(environment);
  if (agent.images.includes(image)) return isRunnable(environment);
  if (environment.built || environment.mustBeBuilt) return false;
  return !serving.some(
    (other) =>
      other.images.includes(image) &&
      isEquipped(other, environment) &&
      accepts(other, environment) &&
      givesAll(other, agent),
  );
}

/** Why none of the serving agents would build the image of a type; undefined if one would. */
export function whyNobodyBuilds(
  environment: Environment,
  serving: AgentReport[],
): string | undefined {
  if (serving.some((agent) => hasLabels(agent, environment))) {
    const isTaken =
      !environment.jobType.made || serving.some((one) => acceptsBuild(one, environment));
    return isTaken ? undefined : nobodyBuilds(environment);
  }
  return serving.length === 0
    ? "No agent with a working container engine is connected. Start one: npm run agent."
    : whyNobodyIsThere(environment, serving);
}

/** Why none of these agents has what a job type requires. */
function whyNobodyIsThere({ jobType }: Environment, agents: AgentReport[]): string {
  if (agents.length === 0) return "No agent is connected. Start one: npm run agent.";
  const asked = Object.entries(jobType.labels).map(([name, value]) => `${name}=${value}`);
  return `No connected agent has the labels that job type ${jobType.name} asks for: ${asked.join(", ")}.`;
}

/** Why no live agent would build the image that jobs of a type wait for; undefined if one would. */
export function whyNoBuild(environment: Environment, live: AgentReport[]): string | undefined {
  const serving = live.filter(isAtWork);
  const nobody = whyNobodyBuilds(environment, serving);
  if (nobody !== undefined || serving.some((agent) => acceptsBuild(agent, environment)))
    return nobody;
  return nobodyBuilds(environment);
}

function nobodyBuilds({ jobType: { name, made } }: Environment): string {
  const keys = `agent_builds, ${made ? "agent_tenant_builds, " : ""}agent_job_types`;
  return `No connected agent builds images of job type ${name}: allow it on one (${keys}).`;
}

/** What of a build is told to those who wait for its image. */
type OpenBuild = Pick<Build, "status" | "step">;

/** Tells a client that its job waits for an image, and which step of the build runs. */
function whyNoImage(
  environment: Environment,
  live: AgentReport[],
  build: OpenBuild | undefined,
): string {
  const waits = `Waits for the image of ${environment.jobType.name}`;
  if (build?.status !== "running") {
    const nobody = whyNoBuild(environment, live);
    return nobody === undefined ? `${waits}.` : `${waits}. ${nobody}`;
  }
  const steps = stepsOf(specOf(environment.jobType));
  const step = build.step === null ? undefined : steps[build.step - 1];
  if (!step) return `${waits}.`;
  const what = "packages" in step ? step.kind : `dockerfile line ${step.line}`;
  return `${waits}: step ${build.step} of ${steps.length}, ${what}.`;
}

/** Message for a job type whose image only a client builds. */
export function notBuilt({ jobType: { name } }: Environment): string {
  return `Job type ${name} has no built image for its present configuration: POST /job-types/${name}/build.`;
}

export function isRunnable({ built, mustBeBuilt }: Environment): boolean {
  return built !== undefined || !mustBeBuilt;
}

/** What the API knows about an agent process. */
export interface AgentReport extends Omit<
  PoolAgent,
  "state" | "problem" | "running" | "sessions" | "last_seen"
> {
  accepts: Accepted;
  /** Sessions that it holds or has room for; null or 0 if it takes none. */
  maxSessions: number | null;
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

/**
 * Why an execution of this mode should not be accepted now; undefined if it should. This depends on
 * the breakers of the live agents or, if no agent is live, on the last reports of the others.
 */
export function whyUnavailable(
  mode: "sync" | "async",
  known: AgentReport[],
  config: Config,
  now: number,
): { detail: string; retryAfterS: number } | undefined {
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

export interface QueueStats {
  pending: number;
  running: number;
  /** Jobs leased to each agent, by its id. */
  runningByAgent: Map<string, number>;
  /** Sessions that each agent holds, by its id. */
  sessionsByAgent: Map<string, number>;
}

/** The health record. Each field shows the best value among the live agents. */
export function health(
  live: AgentReport[],
  queue: QueueStats,
  config: Config,
  version: string,
): Health {
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
  queue: QueueStats,
  config: Config,
  now: number,
): PoolStats {
  const live = known.filter((agent) => isLive(agent, config, now));
  const max = totalSlots(live);
  const running = Math.min(queue.running, max);
  return {
    workers: { max, running, idle: max - running },
    queue: { pending: queue.pending, max: config.max_queue_size },
    agents: known.map((agent) =>
      poolAgent(withPublicPool(agent, config), queue, live.includes(agent)),
    ),
    utilization: max === 0 ? 0 : running / max,
  };
}

/** An agent whose sandboxes name the job types of the configuration alone. */
export function withPublicPool<A extends AgentReport>(agent: A, config: Config): A {
  const named = (kind: A["pool"][number]) => publicName(config, kind.job_type);
  return { ...agent, pool: agent.pool.map((kind) => ({ ...kind, job_type: named(kind) })) };
}

function poolAgent(agent: AgentReport, queue: QueueStats, isHeardOf: boolean): PoolAgent {
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

/** Milliseconds for which a breaker stays open; the same number as in agent/engine/health.ts. */
const recoveryMs = 30_000;

/** Why no live agent may get a job of this type; undefined if one may. */
export function whyNobodyRuns(
  environment: Environment,
  live: AgentReport[],
  { inputs = null, build }: { inputs?: InputWay | null; build?: OpenBuild | undefined } = {},
): string | undefined {
  const { jobType, built } = environment;
  if (!isRunnable(environment)) {
    return awaitsImage(environment) || build
      ? whyNoImage(environment, live, build)
      : notBuilt(environment);
  }
  const giving = live.filter((agent) => givesInputs(agent, inputs));
  if (giving.length === 0 && live.length > 0) return nobodyGives(inputs);
  const labelled = giving.filter((agent) => hasLabels(agent, environment));
  if (labelled.length === 0) return whyNobodyIsThere(environment, giving);
  const able = labelled.filter((agent) => isEquipped(agent, environment));
  if (able.length === 0) return tooFewGpus(environment, labelled);
  if (built && !able.some((agent) => agent.images.includes(built.digest))) {
    if (build || isGone(environment, live)) return whyNoImage(environment, live, build);
    const takers = able.filter((agent) => accepts(agent, environment));
    if (isShared(built) && takers.length > 0) return onItsWay(built, takers);
    return `No connected agent has the image ${built.imageRef} (${built.digest}). Connect the agent that built it, or build it again: POST /job-types/${jobType.name}/build.`;
  }
  return undefined;
}

/** Says that the image is being transferred; if every agent has failed to get it, quotes the first one's error. */
function onItsWay({ imageRef, digest }: BuiltImage, takers: AgentReport[]): string {
  const faults = takers.map(({ name, engine }) => {
    const fault = engine.missing_images?.find(({ image }) => image === digest);
    return fault && `${name} could not get it: ${fault.reason}`;
  });
  const image = `Its image ${imageRef} (${digest})`;
  return faults.every((fault) => fault !== undefined)
    ? `${image} is on no agent that could run it; ${faults[0]}. It is tried again.`
    : `${image} is on its way to ${count(takers.length, "agent")}.`;
}

/** Whether an image that a build makes by itself was made, and neither a store nor one of these agents has it now. */
export function isGone({ built, buildsItself }: Environment, live: AgentReport[]): boolean {
  if (!built || !buildsItself || isShared(built)) return false;
  return !live.some(({ images }) => images.includes(built.digest));
}

/** Whether agents that did not build the image can get it. */
function isShared({ archiveSha256, manifestDigest }: BuiltImage): boolean {
  return Boolean(archiveSha256 ?? manifestDigest);
}

function nobodyGives(inputs: InputWay | null): string {
  return inputs === "mount"
    ? "No connected agent mounts files, which the job needs because its files are large."
    : "No connected agent knows stdin, args and files: run the same version of Airlock on the agents.";
}

function tooFewGpus({ jobType: { name, gpus } }: Environment, labelled: AgentReport[]): string {
  const most = Math.max(...labelled.map((agent) => agent.gpus.total));
  return `Job type ${name} asks for ${count(gpus, "GPU")}, and no connected agent that has its labels gives more than ${most} (agent_gpus).`;
}

/**
 * Why no live agent takes a job of a type now, although one may get it; undefined if one takes it.
 *
 * @param runningBy Number of leases by agent id; empty if they are not known.
 */
export function whyNobodyTakes(
  environment: Environment,
  known: AgentReport[],
  config: Config,
  now: number,
  inputs: InputWay | null = null,
  runningBy: ReadonlyMap<string, number> = new Map(),
): string | undefined {
  const live = known.filter((agent) => isLive(agent, config, now));
  const able = live.filter((agent) => isEquipped(agent, environment) && givesInputs(agent, inputs));
  const serving = servingAgents(able, config, now);
  if (serving.length === 0) return able.length > 0 ? whyNobodyServes(able, now) : undefined;
  const name = environment.jobType.name;
  const accepting = serving.filter((agent) => accepts(agent, environment));
  if (accepting.length === 0) {
    return `No connected agent accepts job type ${name} (agent_job_types), so an agent will refuse the job.`;
  }
  const given = accepting.filter((agent) => mayRun(agent, environment, serving));
  if (given.length === 0) return undefined;
  const vacant = given.filter((agent) => (runningBy.get(agent.id) ?? 0) < agent.slots);
  if (vacant.length === 0) return "Every agent that could run it is busy.";
  if (vacant.some((agent) => agent.gpus.free >= environment.jobType.gpus)) return undefined;
  return "The GPUs of every agent that could run it are in use.";
}

/** Tells a client why its session waits. */
export function whyNobodyHolds(
  environment: Environment,
  known: AgentReport[],
  config: Config,
  now: number,
  build: OpenBuild | undefined,
): string {
  const holding = known.filter(({ maxSessions }) => (maxSessions ?? 0) > 0);
  const live = holding.filter((agent) => isLive(agent, config, now));
  if (live.length === 0) return "No connected agent takes sessions.";
  return (
    whyNobodyRuns(environment, live, { build }) ??
    whyNobodyTakes(environment, holding, config, now) ??
    "Waiting for an agent that has room for a session."
  );
}

function whyNobodyServes(all: AgentReport[], now: number): string {
  const able = all.filter(({ drainingAt }) => drainingAt === null);
  if (able.length === 0)
    return "An operator drains every agent that could run it: none takes new jobs.";
  if (able.some(({ breaker }) => breaker.state !== "open")) {
    return "The container engine of every agent that could run it is out of reach.";
  }
  const until = Math.min(...able.map(({ breaker }) => recoversAt(breaker.last_failure, now)));
  const when = Number.isFinite(until) ? ` until ${new Date(until).toISOString()}` : "";
  return `The circuit breaker of every agent that could run it is open${when}: their container engines keep failing.`;
}

/** Epoch milliseconds; Infinity if the agent's clock is obviously wrong. */
function recoversAt(lastFailure: string | null, now: number): number {
  const at = lastFailure === null ? NaN : Date.parse(lastFailure) + recoveryMs;
  return at > now && at <= now + recoveryMs ? at : Infinity;
}

/** Tells a client the position of its job. */
export function turnMessage(position: number): string {
  const ahead = position > 1 ? `, ${count(position - 1, "job")} ahead` : "";
  return `Waiting for a worker, at position ${position}${ahead}.`;
}

function count(n: number, what: string): string {
  return `${n} ${what}${n === 1 ? "" : "s"}`;
}

type LanguageView = JobTypeView["languages"][number];

/**
 * Languages that jobs of a type may name, without Python. Agents that have looked into the image say which of the
 * usual ones it has; nobody knows that of a job type's own.
 */
export function languagesThere(
  environment: Environment,
  agents: Pick<AgentReport, "accepts">[],
): LanguageView[] {
  const { jobType } = environment;
  const image = isRunnable(environment) ? imageOf(environment) : "";
  const told = agents.flatMap(({ accepts }) =>
    accepts.languages?.[image] === undefined ? [] : [accepts.languages[image]],
  );
  const versions = new Map<string, string>(told.flatMap((each) => Object.entries(each)));
  const isThere = (name: string): boolean =>
    told.length === 0 || Object.hasOwn(jobType.languages, name) || versions.has(name);
  const names = Object.keys(languagesOf(jobType)).filter(isThere).sort();
  return names.map((name) => ({
    name,
    version: Object.hasOwn(jobType.languages, name) ? null : (versions.get(name) ?? null),
  }));
}

/** Why the image of a type does not run a language; undefined if it does, or if nobody knows. */
export function whyNoLanguage(
  environment: Environment,
  agents: Pick<AgentReport, "accepts">[],
  language: string,
): { detail: string; known: string } | undefined {
  const names = languagesThere(environment, agents).map(({ name }) => name);
  if (names.includes(language)) return undefined;
  return {
    detail: `The image of job type ${environment.jobType.name} has nothing that runs ${language}.`,
    known: ["python", ...names].join(", "),
  };
}
