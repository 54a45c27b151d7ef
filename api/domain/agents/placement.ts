import type { Config } from "../../../shared/config/config.ts";
import { matchesPattern } from "../../../shared/pattern.ts";
import { waysOf, type InputWay } from "../../../shared/wire/file.ts";
import { isLive, type AgentReport } from "./capacity.ts";
import { imageOf, type Environment } from "../environment.ts";

/** Agents that could take work now: live, with an engine that answers and a closed or half-open breaker. */
export function servingAgents<A extends AgentReport>(known: A[], config: Config, now: number): A[] {
  return known.filter(
    (agent) =>
      isLive(agent, config, now) &&
      agent.drainingAt === null &&
      agent.engine.available &&
      agent.breaker.state !== "open",
  );
}

/** Images that at least one agent has. */
export function presentImages(agents: AgentReport[]): Set<string> {
  return new Set(agents.flatMap((agent) => agent.images));
}

/** Whether an agent has the labels that a job type requires. */
export function hasLabels(
  { labels }: Pick<AgentReport, "labels">,
  { jobType }: Environment,
): boolean {
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
  return agent.accepts.builds && accepts(agent, environment);
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
  if (serving.some((agent) => hasLabels(agent, environment))) return undefined;
  return serving.length === 0
    ? "No agent with a working container engine is connected. Start one: npm run agent."
    : whyNobodyIsThere(environment, serving);
}

/** Why none of these agents has what a job type requires. */
export function whyNobodyIsThere({ jobType }: Environment, agents: AgentReport[]): string {
  if (agents.length === 0) return "No agent is connected. Start one: npm run agent.";
  const asked = Object.entries(jobType.labels).map(([name, value]) => `${name}=${value}`);
  return `No connected agent has the labels that job type ${jobType.name} asks for: ${asked.join(", ")}.`;
}

/** Message for a job type that `production_mode` keeps from running. */
export function notBuilt(name: string): string {
  return `Job type ${name} has no built image for its present configuration, which production_mode requires: POST /job-types/${name}/build.`;
}

export function isRunnable({ built, mustBeBuilt }: Environment): boolean {
  return built !== undefined || !mustBeBuilt;
}
