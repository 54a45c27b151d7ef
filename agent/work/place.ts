import { createHash } from "node:crypto";
import { canonicalRequirement, parseRequirement } from "../../shared/requirement.ts";
import type { LeasedJob, LeasedSession } from "../../shared/wire/leases.ts";
import type { EngineMonitor } from "../engine/health.ts";
import { ownerOf } from "../host/files.ts";
import type { GpuLease } from "../host/gpus.ts";
import { JobRefusal } from "../host/policy.ts";
import type { PackageCache } from "../packages/cache.ts";
import {
  certificatesName,
  createPackageProxy,
  type PipConfig,
  readRuntimeSource,
} from "../packages/proxy.ts";
import { InstallError, type SandboxJob, type WantedPackages } from "../sandbox/job.ts";
import { EngineError, type SandboxSource } from "../sandbox/sandbox.ts";
import { type Clock, deadline } from "../waiting.ts";
import {
  type Acquired,
  type AcquireDeps,
  acquireSandbox,
  type JobFiles,
  sandboxJob,
  type Want,
} from "./acquire.ts";
import type { Lease } from "./leases.ts";

export type PlaceDeps = StartUpDeps & RequirementsDeps;

/** Where a job or a session runs. Disposing it gives its sandbox back, once. */
interface Place<Job extends SandboxJob | null = SandboxJob> extends AsyncDisposable {
  readonly acquired: Acquired<Job>;
}

/**
 * Finds the place of a job.
 *
 * @param took is told the milliseconds that an installation of packages took.
 * @throws JobRefusal; EngineError; the reason of an aborted signal.
 */
export type FindPlace = (
  deps: PlaceDeps,
  lease: Lease,
  files: Pick<JobFiles, "fetch">,
  gpus: GpuLease,
  took: (ms: number) => void,
) => Promise<Place>;

/** Opens a sandbox for a job alone. */
export const openJobPlace: FindPlace = (deps, lease, ...more) =>
  openPlace(deps, lease, sandboxJob(lease.job), ...more);

/** Opens a sandbox for the lease's job, or for its session, with the packages. As `FindPlace`. */
export async function openPlace<Job extends SandboxJob | null>(
  deps: PlaceDeps,
  lease: StartLease,
  job: Job,
  files: Pick<JobFiles, "fetch">,
  gpus: GpuLease,
  took: (ms: number) => void,
): Promise<Place<Job>> {
  admitRequirements(deps, lease.job);
  const want = (image: string) => wantPackages(deps, lease, image, took);
  const acquired = await startUp(deps, lease, job, gpus, want, files);
  const place = borrow(deps.sandboxes, lease, acquired);
  try {
    await installRequirements(deps, acquired);
    return place;
  } catch (error) {
    await place[Symbol.asyncDispose]();
    throw error;
  }
}

function borrow<Job extends SandboxJob | null>(
  sandboxes: Pick<SandboxSource, "giveBack" | "discard">,
  { drop }: StartLease,
  acquired: Acquired<Job>,
): Place<Job> {
  const { sandbox } = acquired;
  // If the lease is dropped, the sandbox is removed at once: the job may already run elsewhere.
  const discard = (): void => sandboxes.discard(sandbox);
  drop.signal.addEventListener("abort", discard);
  let isOurs = true;
  return {
    acquired,
    [Symbol.asyncDispose]: async () => {
      if (!isOurs) return;
      isOurs = false;
      drop.signal.removeEventListener("abort", discard);
      await sandboxes.giveBack(sandbox);
    },
  };
}

/** The lease of a job or of a session. */
type StartLease = Lease<LeasedJob | LeasedSession>;

type StartUpDeps = AcquireDeps & { readonly engine: EngineMonitor; readonly clock: Clock };

/**
 * Gets a sandbox for the lease's job within the job's startup_timeout.
 *
 * @throws JobRefusal; EngineError; the reason of an aborted signal.
 */
async function startUp<Job extends SandboxJob | null>(
  deps: StartUpDeps,
  { job: leased, drop, cancel }: StartLease,
  job: Job,
  gpus: GpuLease,
  want: Want,
  files: Pick<JobFiles, "fetch">,
): Promise<Acquired<Job>> {
  const { engine, clock } = deps;
  if (engine.slotsToOffer(1, 0) === 0) {
    throw new EngineError("unavailable", "circuit breaker open", { transient: true });
  }
  using limit = deadline(clock, leased.startup_timeout_s * 1000);
  const signal = AbortSignal.any([drop.signal, cancel.signal, limit.signal]);
  try {
    const acquired = await acquireSandbox(deps, leased, job, want, files, gpus, signal);
    engine.recordSuccess();
    return acquired;
  } catch (error) {
    if (error instanceof JobRefusal) throw error;
    if (limit.signal.aborted) {
      engine.checkSoon();
      const message = `The container did not start within ${leased.startup_timeout_s} s.`;
      throw new JobRefusal("startup_timeout", message, { cause: error });
    }
    if (!signal.aborted && isOfEngine(error)) engine.recordFailure();
    throw error;
  }
}

function isOfEngine(error: unknown): boolean {
  return error instanceof EngineError && error.transient && error.code !== "not_forked";
}

type RequirementsDeps = {
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
function admitRequirements(
  { requirements }: RequirementsDeps,
  job: LeasedJob | LeasedSession,
): void {
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
async function wantPackages(
  deps: RequirementsDeps,
  lease: StartLease,
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
  { job, drop, cancel, takenMs }: StartLease,
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
async function installRequirements(
  { requirements: { cache }, clock }: RequirementsDeps,
  acquired: Acquired<SandboxJob | null>,
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
