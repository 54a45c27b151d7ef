import type { InputWay } from "../../../shared/wire/file.ts";
import type { Config } from "../../../shared/config/config.ts";
import { isLive, type AgentReport } from "./capacity.ts";
import type { BuiltImage, Environment } from "../environment.ts";
import {
  accepts,
  givesInputs,
  hasLabels,
  isEquipped,
  isRunnable,
  mayRun,
  notBuilt,
  servingAgents,
  whyNobodyIsThere,
} from "./placement.ts";

/** Milliseconds for which a breaker stays open; the same number as in agent/health/breaker.ts. */
const recoveryMs = 30_000;

/** Why no live agent may get a job of this type; undefined if one may. */
export function whyNobodyRuns(
  environment: Environment,
  live: AgentReport[],
  {
    inputs = null,
    isBeingBuilt = false,
  }: { inputs?: InputWay | null; isBeingBuilt?: boolean } = {},
): string | undefined {
  const { jobType, built } = environment;
  if (!isRunnable(environment)) return isBeingBuilt ? beingBuilt : notBuilt(jobType.name);
  const giving = live.filter((agent) => givesInputs(agent, inputs));
  if (giving.length === 0 && live.length > 0) return nobodyGives(inputs);
  const labelled = giving.filter((agent) => hasLabels(agent, environment));
  if (labelled.length === 0) return whyNobodyIsThere(environment, giving);
  const able = labelled.filter((agent) => isEquipped(agent, environment));
  if (able.length === 0) return tooFewGpus(environment, labelled);
  if (built && !able.some((agent) => agent.images.includes(built.digest))) {
    if (isBeingBuilt) return beingBuilt;
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

/** Whether agents that did not build the image can get it. */
function isShared({ archiveSha256, manifestDigest }: BuiltImage): boolean {
  return Boolean(archiveSha256 ?? manifestDigest);
}

function nobodyGives(inputs: InputWay | null): string {
  return inputs === "mount"
    ? "No connected agent mounts files, which the job needs because its files are large."
    : "No connected agent knows stdin, args and files: run the same version of Airlock on the agents.";
}

const beingBuilt = "Its image is being built.";

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
  isBeingBuilt: boolean,
): string {
  const holding = known.filter(({ maxSessions }) => (maxSessions ?? 0) > 0);
  const live = holding.filter((agent) => isLive(agent, config, now));
  if (live.length === 0) return "No connected agent takes sessions.";
  return (
    whyNobodyRuns(environment, live, { isBeingBuilt }) ??
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
