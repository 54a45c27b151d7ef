import { parseBytes } from "../../shared/bytes.ts";
import type { Config } from "../../shared/config/config.ts";
import { matchesPattern } from "../../shared/pattern.ts";

/**
 * What the operator allows the agent to do; the API cannot override it. A key that is not set
 * limits nothing.
 */
export type Policy = Pick<
  Config,
  | "agent_job_types"
  | "agent_images"
  | "agent_networks"
  | "agent_runtimes"
  | "agent_max_memory"
  | "agent_max_cpus"
  | "agent_max_gpus"
  | "agent_max_timeout"
  | "agent_max_stdout_bytes"
  | "agent_max_artifact_bytes"
  | "agent_builds"
>;

/** What a job or a build asks for. */
export type Asked = {
  readonly jobType: string;
  /** Each image with all its names; one of them has to be accepted. */
  readonly images: readonly (readonly string[])[];
  readonly networks: readonly string[];
  readonly runtime: string;
  readonly isBuild?: boolean;
  /** In the form of job types, such as "512m". */
  readonly memory?: string;
  readonly cpus?: number;
  readonly gpus?: number;
  readonly timeoutS?: number;
  /** Bytes kept of each output stream. */
  readonly stdoutBytes?: number;
  readonly artifactBytes?: number;
};

/** What a build may use of its host. */
export interface BuildLimits {
  readonly memoryBytes: number;
  readonly cpus: number;
  /** Processes and threads at a time. */
  readonly pids: number;
  /** Size of the container's own files, if the engine can limit it. */
  readonly diskBytes: number;
}

const GiB = 1024 ** 3;

/**
 * The limits of a build: the policy's, else defaults, because a build does not ask for any itself.
 */
export function buildLimits({ agent_max_memory, agent_max_cpus }: Policy): BuildLimits {
  return {
    memoryBytes: agent_max_memory === undefined ? 2 * GiB : parseBytes(agent_max_memory),
    cpus: agent_max_cpus ?? 1,
    pids: 1024,
    diskBytes: 20 * GiB,
  };
}

/** Most bytes of memory of one job; null for no bound. */
export function mostMemory({ agent_max_memory: most }: Policy): number | null {
  return most === undefined ? null : parseBytes(most);
}

/** Why the policy forbids the request; undefined if it allows it. */
export function explainRefusal(policy: Policy, asked: Asked): string | undefined {
  const { isBuild = false, memory = "0", cpus = 0, gpus = 0, timeoutS = 0 } = asked;
  const { stdoutBytes = 0, artifactBytes = 0 } = asked;
  if (isBuild && !policy.agent_builds) return "agent_builds is false";
  const refusals = [
    leftOut("agent_job_types", policy.agent_job_types, [asked.jobType]),
    ...asked.images.map((names) => leftOut("agent_images", policy.agent_images, names)),
    ...asked.networks.map((network) => leftOut("agent_networks", policy.agent_networks, [network])),
    leftOut("agent_runtimes", policy.agent_runtimes, [asked.runtime]),
    above("agent_max_memory", policy.agent_max_memory, memory, parseBytes),
    above("agent_max_cpus", policy.agent_max_cpus, cpus),
    above("agent_max_gpus", policy.agent_max_gpus, gpus),
    above("agent_max_timeout", policy.agent_max_timeout, timeoutS),
    above("agent_max_stdout_bytes", policy.agent_max_stdout_bytes, stdoutBytes),
    above("agent_max_artifact_bytes", policy.agent_max_artifact_bytes, artifactBytes),
  ];
  return refusals.find((refusal) => refusal !== undefined);
}

function leftOut(
  key: string,
  accepted: readonly string[] | undefined,
  names: readonly string[],
): string | undefined {
  if (
    !accepted ||
    names.some((name) => accepted.some((pattern) => matchesPattern(pattern, name)))
  ) {
    return undefined;
  }
  return `${key} leaves out ${names.join(", ") || "an image that is not on the host"}`;
}

function above<T>(
  key: string,
  most: T | undefined,
  asked: T,
  size: (value: T) => number = Number,
): string | undefined {
  if (most === undefined || size(asked) <= size(most)) return undefined;
  return `${key} is ${String(most)}, less than ${String(asked)}`;
}
