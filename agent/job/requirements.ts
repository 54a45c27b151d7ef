import { createHash } from "node:crypto";
import type { LeasedJob } from "../../shared/wire/lease.ts";
import { canonicalRequirement, parseRequirement } from "../../shared/requirement.ts";
import type { Acquired } from "./acquire.ts";
import { type Clock, deadline } from "../waiting/clock.ts";
import { JobRefusal } from "../policy/refusal.ts";
import type { Lease } from "../lease/leases.ts";
import type { PackageCache } from "../packages/cache.ts";
import { createPackageProxy } from "../packages/proxy.ts";
import type { PipConfig } from "../packages/source.ts";
import {
  certificatesName,
  readRuntimeSource,
  type RuntimeSource,
} from "../packages/runtime-source.ts";
import { InstallError } from "../sandbox/package-request.ts";

export type RequirementsDeps = {
  readonly requirements: {
    /** The operator of this host lets jobs bring packages. */
    readonly allowed: boolean;
    /** Null where nothing is kept. */
    readonly cache: PackageCache | null;
  };
  readonly pip: PipConfig;
  readonly clock: Clock;
};

const MAX_PROBLEMS = 5;

/**
 * The API has looked at them too; this host has its own say.
 *
 * @throws JobRefusal where the job's requirements may not be installed here.
 */
export function admitRequirements({ requirements }: RequirementsDeps, job: LeasedJob): void {
  if (job.requirements.length === 0) return;
  if (!requirements.allowed) {
    const message =
      "The agent does not install requirements: allow_runtime_requirements is false in its own configuration.";
    throw new JobRefusal("config_error", message);
  }
  const at = job.requirements.findIndex((text) => parseRequirement(text) === null);
  if (at < 0) return;
  const shown = JSON.stringify(job.requirements[at]);
  throw new JobRefusal("dependency_error", `requirements.${at} is not a package's name: ${shown}`);
}

/**
 * Installs the job's requirements into its container, within what is left of its startup_timeout.
 *
 * @param note told how many milliseconds pip took, as soon as it has ended.
 * @throws JobRefusal; EngineError; the reason of an aborted signal.
 */
export async function installRequirements(
  deps: RequirementsDeps,
  lease: Lease,
  acquired: Acquired,
  note: (installMs: number) => void,
): Promise<void> {
  const { job, drop, cancel, takenMs } = lease;
  if (job.requirements.length === 0) return;
  const leftMs = takenMs + job.startup_timeout_s * 1000 - deps.clock.nowMs();
  using limit = deadline(deps.clock, Math.max(0, leftMs));
  const signal = AbortSignal.any([drop.signal, cancel.signal, limit.signal]);
  try {
    await install(deps, job, acquired, note, signal);
  } catch (error) {
    if (error instanceof InstallError) {
      throw new JobRefusal("dependency_error", error.message, { cause: error });
    }
    if (!limit.signal.aborted || drop.signal.aborted || cancel.signal.aborted) throw error;
    const message = `The requirements were not installed within ${job.startup_timeout_s} s (startup_timeout).`;
    throw new JobRefusal("startup_timeout", message, { cause: error });
  }
}

async function install(
  deps: RequirementsDeps,
  job: LeasedJob,
  acquired: Acquired,
  note: (installMs: number) => void,
  signal: AbortSignal,
): Promise<void> {
  const { clock } = deps;
  const { cache } = deps.requirements;
  const { sandbox } = acquired;
  const { requirements } = job;
  const source = await readRuntimeSource(deps.pip);
  const key = cacheKey(job, acquired, source);
  await using kept = (await cache?.find(key)) ?? null;
  if (kept) return await sandbox.install({ requirements, from: { kept: kept.pieces } }, signal);

  await using keeper = (await cache?.begin(key)) ?? null;
  const { certificates, reach } = source;
  const problems = new Set<string>();
  const from = {
    // What runs once is not worth compiling all of it.
    pipEnv: { ...source.pipEnv, ...(keeper === null && { PIP_NO_COMPILE: "1" }) },
    files: certificates === null ? {} : { [certificatesName]: certificates },
    serve: createPackageProxy(reach, (words) => problems.add(words)),
    keep: keeper && (async () => (await keeper.restart(), keeper.write)),
  };
  const beganMs = clock.nowMs();
  try {
    await sandbox.install({ requirements, from }, signal);
  } catch (error) {
    if (!(error instanceof InstallError) || problems.size === 0) throw error;
    const reached = [...problems].slice(0, MAX_PROBLEMS).join("; ").slice(0, 1000);
    throw new InstallError(`${error.message}\nWhat could not be reached: ${reached}.`, {
      cause: error,
    });
  } finally {
    note(clock.nowMs() - beganMs);
  }
  await keeper?.commit();
}

/** The same for jobs that pip would give the same packages; sets are never mixed. */
function cacheKey(job: LeasedJob, { sandbox, jobRef, runtime }: Acquired, source: RuntimeSource) {
  const image = jobRef.slice(jobRef.indexOf("@") + 1);
  const set = [...new Set(job.requirements.map(canonicalRequirement))].sort();
  const { fingerprint } = source;
  const all = [image, sandbox.pythonVersion, runtime, job.job_type.env, fingerprint, set];
  return createHash("sha256").update(JSON.stringify(all)).digest("hex");
}
