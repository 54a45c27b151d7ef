import { loadConfig } from "../../shared/config/config.ts";
import type { AgentReport } from "../domain/agents/capacity.ts";
import {
  type BuiltImage,
  buildSpec,
  type Environment,
  environment,
} from "../domain/environment.ts";
import { resolveJobType } from "../domain/job-types.ts";

export const base = "python:3.13-slim";
export const digest = `sha256:${"1".repeat(64)}`;
export const breaker = {
  state: "closed",
  failure_count: 0,
  success_count: 0,
  last_failure: null,
} as const;

/** A live agent that may take any job, and has no image. */
export const agent = (changes: Partial<AgentReport> = {}): AgentReport => ({
  id: "a",
  name: "a",
  version: "1",
  labels: {},
  accepts: { job_types: null, builds: true },
  slots: 1,
  gpus: { total: 0, free: 0 },
  warm: 0,
  maxSessions: null,
  pool: [],
  engine: { available: true, version: "1", runtimes: [] },
  breaker,
  images: [],
  lastSeenAt: 1000,
  drainingAt: null,
  ...changes,
});
export const withBase = agent({ images: [base] });
export const withBuilt = agent({ images: [digest] });

/** The environment of a job type, with or without a built image. */
export function environmentOf(
  jobType: object,
  { isBuilt = false, production_mode = false } = {},
): Environment {
  const config = loadConfig({ job_types: { t: jobType }, production_mode }, {});
  const image: BuiltImage = {
    jobType: "t",
    tag: "v1.0.0",
    spec: buildSpec(resolveJobType(config, "t")!),
    imageRef: "airlock-t:v1.0.0",
    digest,
    pythonVersion: "3.13.5",
  };
  return environment(config, isBuilt ? [image] : [], "t")!;
}

export const plain = environmentOf({});
export const built = environmentOf({}, { isBuilt: true });
export const labelled = environmentOf({ labels: { gpu: "a100" } });
export const inProduction = environmentOf({}, { production_mode: true });
