import type { Config } from "../../shared/config/config.ts";
import { matchesPattern } from "../../shared/pattern.ts";
import { isLive, type AgentReport } from "./capacity.ts";
import { imageOf, type Environment } from "./environment.ts";

/** Agents that could take work now: heard of lately, with an engine that answers. */
export function servingAgents<A extends AgentReport>(known: A[], config: Config, now: number): A[] {
  return known.filter(
    (agent) =>
      isLive(agent, config, now) && agent.engine.available && agent.breaker.state !== "open",
  );
}

/** The images that some agent has. */
export function presentImages(agents: AgentReport[]): Set<string> {
  return new Set(agents.flatMap((agent) => agent.images));
}

/** Whether an agent has the labels that a job type asks for. */
export function hasLabels(
  { labels }: Pick<AgentReport, "labels">,
  { jobType }: Environment,
): boolean {
  return Object.entries(jobType.labels).every(([name, value]) => labels[name] === value);
}

/** Whether an agent has all that jobs of a type need of their host but the image. */
export function isEquipped(
  agent: Pick<AgentReport, "labels" | "gpus">,
  environment: Environment,
): boolean {
  return hasLabels(agent, environment) && agent.gpus.total >= environment.jobType.gpus;
}

/** Whether an agent's operator has it run jobs of a type. */
export function accepts(
  { accepts }: Pick<AgentReport, "accepts">,
  { jobType }: Environment,
): boolean {
  const { job_types } = accepts;
  return job_types?.some((pattern) => matchesPattern(pattern, jobType.name)) ?? true;
}

/** What decides over the jobs that an agent may be given. */
export type Placed = Pick<AgentReport, "labels" | "gpus" | "images" | "accepts">;

/** Jobs that nobody accepts go to those who refuse them: the records then say why. */
export function mayRun(agent: Placed, environment: Environment, serving: AgentReport[]): boolean {
  if (!canRun(agent, environment, serving)) return false;
  return (
    accepts(agent, environment) ||
    !serving.some((other) => accepts(other, environment) && canRun(other, environment, serving))
  );
}

/**
 * The same for builds. Where none of the agents with the labels builds, and images travel, any
 * other may do it for them.
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
 * Whether an agent can run jobs of a type: it has the image; or nobody has, and it may try to
 * pull it, which built images cannot be.
 */
function canRun(agent: Placed, environment: Environment, serving: AgentReport[]): boolean {
  if (!isEquipped(agent, environment)) return false;
  const image = imageOf(environment);
  if (agent.images.includes(image)) return isRunnable(environment);
  if (environment.built || environment.mustBeBuilt) return false;
  return !serving.some(
    (other) =>
      other.images.includes(image) && isEquipped(other, environment) && accepts(other, environment),
  );
}

/** Why none of the serving agents would build the image of a type; undefined when one would. */
export function whyNobodyBuilds(
  environment: Environment,
  serving: AgentReport[],
): string | undefined {
  if (serving.some((agent) => hasLabels(agent, environment))) return undefined;
  return serving.length === 0
    ? "No agent with a working container engine is connected. Start one: npm run agent."
    : whyNobodyIsThere(environment, serving);
}

/** Why none of these agents has what a job type asks for. */
export function whyNobodyIsThere({ jobType }: Environment, agents: AgentReport[]): string {
  if (agents.length === 0) return "No agent is connected. Start one: npm run agent.";
  const asked = Object.entries(jobType.labels).map(([name, value]) => `${name}=${value}`);
  return `No connected agent has the labels that job type ${jobType.name} asks for: ${asked.join(", ")}.`;
}

/** What to do about a job type that production_mode keeps from running. */
export function notBuilt(name: string): string {
  return `Job type ${name} has no built image for its present configuration, which production_mode requires: POST /job-types/${name}/build.`;
}

export function isRunnable({ built, mustBeBuilt }: Environment): boolean {
  return built !== undefined || !mustBeBuilt;
}
