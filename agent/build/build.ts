import type { Logger } from "@logtape/logtape";
import type { ExecutionError, ExecutionErrorType } from "../../shared/wire/errors.ts";
import type { AgentIdentity, BuildReport, LeasedBuild } from "../../shared/wire/agent/lease.ts";
import { describeError } from "../../shared/log-line.ts";
import type { Admission } from "../policy/admission.ts";
import { ApiError } from "../api/errors.ts";
import { type BuildLog, createBuildLog } from "./build-log.ts";
import type { Client } from "../api/client.ts";
import { type Clock, deadline } from "../waiting/clock.ts";
import type { EngineMonitor } from "../health/engine-monitor.ts";
import type { Images } from "../image/images.ts";
import type { Inventory } from "../image/inventory.ts";
import { JobRefusal } from "../policy/refusal.ts";
import { type Lease, LeaseDropped } from "../lease/leases.ts";
import { createPackageProxy } from "../packages/proxy.ts";
import { type PipConfig, readPackageSource } from "../packages/source.ts";
import type { ImageRequest } from "./build-profile.ts";
import type { MadeImage } from "./image-build.ts";
import { InstallError } from "../sandbox/package-request.ts";
import { EngineError } from "../sandbox/errors.ts";
import { PushError } from "../image/share-image.ts";

export type MakeImage = (
  order: Omit<ImageRequest, "limits">,
  onLog: (bytes: Uint8Array) => void,
  signal: AbortSignal,
) => Promise<MadeImage>;

/**
 * Uploads an image to where other agents fetch it; returns its digest in the registry, if it is in
 * one.
 */
export type ShareImage = (
  build: LeasedBuild,
  image: string,
  say: (words: string) => void,
  signal: AbortSignal,
) => Promise<string | null>;

export type BuildDeps = {
  readonly agent: AgentIdentity;
  readonly admission: Admission;
  readonly client: Pick<Client, "buildLogs" | "buildResult" | "buildRelease">;
  readonly images: Images;
  readonly inventory: Inventory;
  readonly engine: EngineMonitor;
  readonly makeImage: MakeImage;
  readonly shareImage: ShareImage;
  readonly pip: PipConfig;
  readonly clock: Clock;
  readonly log: Logger;
};

type Outcome =
  | { readonly kind: "result"; readonly report: BuildReport }
  /** Another attempt may succeed. */
  | { readonly kind: "release"; readonly error: ExecutionError; readonly agentStops?: true };

/**
 * Builds one leased image, from its base image to the posted report.
 *
 * @throws ApiError of kind `unauthorized`.
 */
export async function runBuild(agent: BuildDeps, lease: Lease<LeasedBuild>): Promise<void> {
  const log = agent.log.with({ correlationId: lease.job.correlation_id });
  const deps = { ...agent, log };
  const outcome = await attempt(deps, lease);
  await post(deps, lease, outcome);
}

async function attempt(deps: BuildDeps, lease: Lease<LeasedBuild>): Promise<Outcome> {
  const { clock, engine, inventory, log } = deps;
  const { job, drop, cancel } = lease;
  const buildLog = createBuildLog(clock, (chunk) => sendLog(deps, lease, chunk));
  using limit = deadline(clock, job.timeout_s * 1000);
  try {
    const signal = AbortSignal.any([drop.signal, cancel.signal, limit.signal]);
    const { digest, pythonVersion } = await build(deps, job, buildLog, signal);
    engine.recordSuccess();
    const say = (words: string): void => buildLog.add(Buffer.from(words));
    const manifestDigest = await deps.shareImage(job, digest, say, signal);
    inventory.add(digest);
    const made = { digest, python_version: pythonVersion, manifest_digest: manifestDigest };
    return { kind: "result", report: { status: "built", ...made } };
  } catch (error) {
    if (limit.signal.aborted) {
      return failed("timeout", `The build did not end within ${job.timeout_s} s (build_timeout).`);
    }
    if (cancel.signal.aborted) {
      const message = "The agent stopped before the build ended.";
      const error = { type: "service_unavailable", message, phase: "startup" } as const;
      return { kind: "release", error, agentStops: true };
    }
    if (error instanceof InstallError) return failed("dependency_error", error.message);
    if (error instanceof PushError) {
      log.warn("{reason}", { reason: error.message });
      return release("docker_error", error.message);
    }
    if (error instanceof JobRefusal) {
      log.warn("build of {image} refused: {reason}", {
        image: job.job_type,
        reason: error.message,
      });
      return failed(error.type, error.message);
    }
    return outcomeOfFault(deps, lease, error);
  } finally {
    await buildLog.close().catch(() => {});
  }
}

async function build(
  { agent, admission, images, pip, makeImage }: BuildDeps,
  job: LeasedBuild,
  buildLog: BuildLog,
  signal: AbortSignal,
): Promise<MadeImage> {
  await admission.admitBuild(job, signal);
  // A build uses the current base image.
  images.forget(job.base_image);
  const baseImage = await images.resolve(job.base_image, signal);
  const { files, pipEnv, hosts } = await readPackageSource(pip);
  const serve = createPackageProxy({ ...hosts, files: [] }, (words) =>
    buildLog.add(Buffer.from(`Could not be reached: ${words}\n`)),
  );
  buildLog.add(Buffer.from(`Building on ${job.base_image} (${baseImage})\n`));
  const { requirements, repository, tags, job_type: jobType } = job;
  const owner = { agentId: agent.id, agentName: agent.name, leaseId: job.lease_id };
  const image = { baseImage, requirements, jobType, repository, tags, owner };
  return makeImage({ ...image, files, pipEnv, serve }, buildLog.add, signal);
}

async function sendLog(
  { client }: BuildDeps,
  { job, drop }: Lease<LeasedBuild>,
  chunk: Parameters<Client["buildLogs"]>[1],
): Promise<void> {
  try {
    await client.buildLogs(job.lease_id, chunk, drop.signal);
  } catch (error) {
    if (error instanceof ApiError && error.kind === "lease_lost") {
      drop.abort(new LeaseDropped("the API gave the lease up"));
    }
    throw error;
  }
}

function outcomeOfFault(
  { engine, log }: BuildDeps,
  { drop }: Lease<LeasedBuild>,
  error: unknown,
): Outcome {
  const reason = describeError(error);
  if (!drop.signal.aborted) {
    log.error("build failed: {reason}", { reason });
    engine.checkSoon();
  }
  if (!(error instanceof EngineError)) return release("internal_error", "The build failed.");
  if (!error.transient) return failed("docker_error", reason);
  engine.recordFailure();
  return release("docker_error", reason);
}

async function post(
  { client, log }: BuildDeps,
  lease: Lease<LeasedBuild>,
  outcome: Outcome,
): Promise<void> {
  const { job, drop } = lease;
  const { lease_id, job_type, tags } = job;
  const what = { image: `${job_type} ${tags[0]}` };
  try {
    drop.signal.throwIfAborted();
    lease.isReporting = true;
    if (outcome.kind === "release") {
      const { error, agentStops: agent_stops } = outcome;
      await client.buildRelease(lease_id, { error, agent_stops }, drop.signal);
      log.warn("build of {image} released: {reason}", { ...what, reason: outcome.error.message });
    } else {
      await client.buildResult(lease_id, outcome.report, drop.signal);
      log.info("build of {image} {status}", { ...what, status: outcome.report.status });
    }
  } catch (error) {
    if (error instanceof ApiError && error.endsAgent) throw error;
    const reason = describeError(drop.signal.aborted ? drop.signal.reason : error);
    log.warn("build of {image} dropped: {reason}", { ...what, reason });
  }
}

function failed(type: ExecutionErrorType, message: string): Outcome {
  const error = { type, message, phase: "startup" } as const;
  return { kind: "result", report: { status: "failed", error } };
}

function release(type: ExecutionErrorType, message: string): Outcome {
  return { kind: "release", error: { type, message, phase: "startup" } };
}
