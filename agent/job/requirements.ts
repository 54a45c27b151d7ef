import { createHash } from "node:crypto";
import type { LeasedJob } from "../../shared/wire/agent/lease.ts";
import { canonicalRequirement, parseRequirement } from "../../shared/requirement.ts";
import type { Acquired } from "./acquire.ts";
import { type Clock, deadline } from "../waiting/clock.ts";
import { ownerOf } from "../policy/evict.ts";
import { JobRefusal } from "../policy/refusal.ts";
import type { Lease } from "../lease/leases.ts";
import type { PackageCache } from "../packages/cache.ts";
import { createPackageProxy } from "../packages/proxy.ts";
import type { PipConfig } from "../packages/source.ts";
import { certificatesName, readRuntimeSource } from "../packages/runtime-source.ts";
import { InstallError, type WantedPackages } from "../sandbox/package-request.ts";

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
 * What the job's requirements ask for on an image; null if there are none.
 *
 * @param took is told the milliseconds that an installation took.
 * @throws JobRefusal if a file that names the source of packages cannot be read.
 */
export async function wantPackages(
  deps: RequirementsDeps,
  lease: Lease,
  image: string,
  took: (installMs: number) => void,
): Promise<WantedPackages | null> {
  const { requirements, job_type, tenant } = lease.job;
  if (requirements.length === 0) return null;
  const { pipEnv, certificates, reach, fingerprint } = await readRuntimeSource(deps.pip);
  const problems = new Set<string>();
  const set = [...new Set(requirements.map(canonicalRequirement))].sort();
  return {
    requirements,
    tenant,
    key: hashOf([tenant, image, job_type.env, fingerprint, set]),
    from: {
      // Without the cache, packages are used once: compiling all of them would cost more than it
      // saves.
      pipEnv: { ...pipEnv, ...(deps.requirements.cache === null && { PIP_NO_COMPILE: "1" }) },
      files: certificates === null ? {} : { [certificatesName]: certificates },
      serve: createPackageProxy(reach, (words) => problems.add(words)),
      keep: null,
      maxBytes: null,
    },
    wait: (install) => waitFor(deps, lease, install, problems),
    took,
  };
}

/** Waits for an installation for the time that is left of the job's startup_timeout. */
async function waitFor<T>(
  { clock }: RequirementsDeps,
  { job, drop, cancel, takenMs }: Lease,
  install: (signal: AbortSignal) => Promise<T>,
  problems: ReadonlySet<string>,
): Promise<T> {
  const leftMs = takenMs + job.startup_timeout_s * 1000 - clock.nowMs();
  using limit = deadline(clock, Math.max(0, leftMs));
  const signal = AbortSignal.any([drop.signal, cancel.signal, limit.signal]);
  try {
    return await install(signal);
  } catch (error) {
    if (error instanceof InstallError) {
      throw new JobRefusal("dependency_error", explained(error, problems), { cause: error });
    }
    if (!limit.signal.aborted || drop.signal.aborted || cancel.signal.aborted) throw error;
    const message = `The requirements were not installed within ${job.startup_timeout_s} s (startup_timeout).`;
    throw new JobRefusal("startup_timeout", message, { cause: error });
  }
}

function explained({ message }: InstallError, problems: ReadonlySet<string>): string {
  if (problems.size === 0) return message;
  const reached = [...problems].slice(0, MAX_PROBLEMS).join("; ").slice(0, 1000);
  return `${message}\nWhat could not be reached: ${reached}.`;
}

/**
 * Installs the job's packages into its container, unless they are there already.
 *
 * @throws JobRefusal; EngineError; the reason of an aborted signal.
 */
export async function installRequirements(
  { requirements: { cache }, clock }: RequirementsDeps,
  acquired: Acquired,
): Promise<void> {
  const { sandbox, packages } = acquired;
  if (packages === null || sandbox.hasPackages) return;
  const { requirements, from, took } = packages;
  await packages.wait(async (signal) => {
    // The same key may mean another Python or platform here: the engine chooses the runtime.
    const content = hashOf([packages.key, sandbox.pythonVersion, acquired.runtime]);
    const key = `${ownerOf(packages.tenant)}${content}`;
    await using kept = (await cache?.find(key)) ?? null;
    if (kept) return await sandbox.install({ requirements, from: { kept: kept.pieces } }, signal);

    await using keeper = (await cache?.begin(key)) ?? null;
    const keep = keeper && (async () => (await keeper.restart(), keeper.write));
    const beganMs = clock.nowMs();
    try {
      await sandbox.install({ requirements, from: { ...from, keep } }, signal);
    } finally {
      took(clock.nowMs() - beganMs);
    }
    await keeper?.commit();
  });
}

function hashOf(parts: readonly unknown[]): string {
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex");
}
