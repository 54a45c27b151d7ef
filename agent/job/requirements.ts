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
    /** Whether the operator of this host lets jobs install packages. */
    readonly allowed: boolean;
    /** Null if nothing is cached. */
    readonly cache: PackageCache | null;
  };
  readonly pip: PipConfig;
  readonly clock: Clock;
};

const MAX_PROBLEMS = 5;

/**
 * Checks the job's requirements against this host's own settings; the API has checked them before.
 *
 * @throws JobRefusal if the job's requirements may not be installed here.
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
 * Installs the job's requirements into its container, in the time that is left of its
 * startup_timeout.
 *
 * @param note called when pip has ended, with the milliseconds that it took.
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
    // Without the cache, packages are used once: compiling all of them would cost more than it
    // saves.
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

/**
 * Equal for jobs to which pip would give the same packages. Each set of requirements has an entry
 * of its own.
 */
function cacheKey(job: LeasedJob, { sandbox, jobRef, runtime }: Acquired, source: RuntimeSource) {
  const image = jobRef.slice(jobRef.indexOf("@") + 1);
  const set = [...new Set(job.requirements.map(canonicalRequirement))].sort();
  const { fingerprint } = source;
  const all = [image, sandbox.pythonVersion, runtime, job.job_type.env, fingerprint, set];
  return createHash("sha256").update(JSON.stringify(all)).digest("hex");
}
