import { decodeUtf8, fromBase64 } from "../../shared/bytes.ts";
import type { Config } from "../../shared/config/config.ts";
import { canonicalJson } from "../../shared/json.ts";
import type { ExecutionError } from "../../shared/wire/errors.ts";
import {
  type Build,
  type BuildResult,
  type BuildSpec,
  type ImageSource,
  type ImageTransport,
  JobTypeName,
  type OwnJobType,
} from "../../shared/wire/job-types.ts";
import type {
  BuildLogChunk,
  BuildReport,
  LeasedBuild,
  PollRequest,
  ReleaseReport,
} from "../../shared/wire/leases.ts";
import { limits } from "../../shared/wire/limits.ts";
import { listAgents, servingKinds } from "../agents/fleet.ts";
import {
  isGone,
  isLive,
  mayBuild,
  servingAgents,
  whyNobodyBuilds,
  whyNoBuild,
} from "../agents/placement.ts";
import { leaseLost, refuseUnless, requireHeld } from "../agents/posts.ts";
import { backstopMs, type ClientDeps, type Deps, type Hashed, UploadMismatch } from "../deps.ts";
import { AppError, notFound, unavailable, wrongField, wrongFields } from "../errors.ts";
import { fileForAgents, type StoredFile } from "../files/files.ts";
import {
  awaitsImage,
  buildSpec,
  type Environment,
  environment as environmentOf,
  isFor,
  openBuildOf,
  ownPrefix,
  pinnedRef,
  resolveJobType,
  stepsOf,
  whyTooMuch,
} from "../jobs/environment.ts";
import type { LeaseTerms } from "../jobs/lease.ts";
import { readEnvironment, readEnvironments, timestamp } from "../jobs/read.ts";
import { failWaiting, tellEnd } from "../jobs/wait.ts";
import { tellSession } from "../sessions/lease.ts";
import { advanceSession, queuedSessions } from "../sessions/sql.ts";
import { perDatabase } from "../store/tenant.ts";
import { type Actor, service } from "../tenants/sql.ts";
import {
  advanceBuild,
  archivedBuilds,
  awaitedTypes,
  buildBefore,
  type BuildEvent,
  type BuildRow,
  builtImages,
  catalogue,
  claimBuilds,
  dropArchive,
  dropJobType,
  expireBuilds,
  findBuildById,
  findBuildByLease,
  findImage,
  finishBuild,
  isServedElsewhere,
  lastBuilds,
  type NewBuild,
  openBuilds,
  putJobType,
  readBuildLog,
  recordArchive,
  recordBuildLog,
  requestBuild,
  undeliveredBuilds,
} from "./sql.ts";

const retryAfterS = 5;

/**
 * Queues a build of a job type's image, and waits for its end. Equal requests share one build, which
 * continues if a client hangs up.
 *
 * @throws AppError 422 when its requirements cannot be installed; 502 when the engine failed; 503 when there is no agent.
 */
export async function buildImage(
  deps: Deps,
  environment: Environment,
  versionTag: string | undefined,
  by: Actor,
  signal: AbortSignal,
): Promise<BuildResult> {
  const { db, notifier } = deps;
  const obstacle = await whyNotNow(deps, environment);
  if (obstacle !== undefined) throw unavailable(obstacle, retryAfterS);
  const id = await requestBuild(db, newBuild(deps, environment, by, versionTag), by);
  notifier.notify("build", 0, environment.jobType.name);
  return toResult(await waitForBuild(deps, id, environment, signal));
}

function newBuild(
  { config, newId }: Deps,
  { jobType }: Environment,
  { correlationId, at }: Actor,
  tag = "latest",
): NewBuild {
  return {
    id: newId(),
    jobType: jobType.name,
    tag,
    spec: buildSpec(jobType),
    imageRef: imageRefOf(config, jobType.name, tag),
    correlationId,
    createdAt: at,
  };
}

/** For so long after a failure, jobs start no build; each further failure doubles the time. */
const firstRetryMs = 60_000;

/**
 * Requests the builds of these job types whose images jobs or sessions wait for. Where a build has just failed, they
 * fail with its error instead. Any process may do this at any time. Returns whether it has requested a build.
 */
export async function serveAwaited(deps: Deps, unbuilt: Environment[]): Promise<boolean> {
  const { config, db, notifier, now, log } = deps;
  const names = unbuilt.map(({ jobType }) => jobType.name);
  let isRequested = false;
  for (const { jobType: name, correlationId } of await awaitedTypes(db, names, now())) {
    const environment = unbuilt.find(({ jobType }) => jobType.name === name)!;
    const at = now();
    const last = await lastBuilds(db, { jobType: name, spec: buildSpec(environment.jobType) });
    const [newest] = last;
    const other = last.find(({ status }) => status !== "failed");
    // Another process has had it built, or is about to.
    if (other && other.digest !== environment.built?.digest) continue;
    const failed = last.slice(0, other && last.indexOf(other));
    // Builds that clients have requested meanwhile do not lengthen the pause.
    const failures = failed.filter(({ createdAt }, n) => {
      const before = failed[n + 1];
      return !before || createdAt >= before.endedAt! + firstRetryMs;
    });
    const waitMs = Math.min(firstRetryMs * 2 ** (failures.length - 1), hourMs);
    if (newest?.error && at < newest.endedAt! + waitMs) {
      if (await isServedElsewhere(db, newest)) continue;
      const { type, message } = newest.error;
      await failAwaiting(deps, name, { type, message: failureText(name, message) });
      continue;
    }
    const live = (await listAgents(db)).filter((agent) => isLive(agent, config, at));
    if (whyNoBuild(environment, live) !== undefined) continue;
    const by = service(correlationId, at);
    await requestBuild(db, newBuild(deps, environment, by), by, newest?.seq ?? 0);
    log
      .with({ correlationId })
      .info("job type {name} is built for the jobs that wait for it", { name });
    notifier.notify("build", 0, name);
    isRequested = true;
  }
  return isRequested;
}

/** When this process first missed each image. While an agent restarts, its images are missed for a moment only. */
const missed = perDatabase(() => ({ since: new Map<string, number>() }));
const missedMs = 60_000;

/** Requests the builds of images that no agent and no store has had for a minute, if jobs or sessions wait for them. */
export async function rebuildLost(deps: Deps): Promise<void> {
  const { config, db, now } = deps;
  const at = now();
  const [agents, all] = await Promise.all([listAgents(db), readEnvironments(deps)]);
  const live = agents.filter((agent) => isLive(agent, config, at));
  const lost = all.filter((one) => isGone(one, live) && whyNoBuild(one, live) === undefined);
  const known = missed(db);
  const { since } = known;
  known.since = new Map(lost.map(({ built }) => [built!.digest, since.get(built!.digest) ?? at]));
  const due = lost.filter(({ built }) => at - known.since.get(built!.digest)! >= missedMs);
  if (due.length > 0) await serveAwaited(deps, due);
}

/** Fails the jobs and sessions of a type that wait: those whose time has come, or all until a time. */
async function failAwaiting(
  deps: Deps,
  jobType: string,
  why: Pick<ExecutionError, "type" | "message">,
  until = deps.now(),
): Promise<void> {
  const { db, now } = deps;
  const error = { ...why, phase: "startup" } as const;
  const failed = await failWaiting(db, jobType, error, now(), until);
  for (const execution of failed) tellEnd(deps, execution);
  for (const id of await queuedSessions(db, jobType)) {
    const result = await advanceSession(db, { id }, { kind: "fail", error }, now());
    if (result.kind === "changed") tellSession(deps, result);
  }
}

/**
 * Makes or changes a job type of the caller's tenant. Jobs that wait run with what it is then.
 *
 * @throws AppError 409 when the configuration has the name, or the tenant has as many as it may; 400 when a key asks
 *   for more than the tenant may have, or the name is not one of the tenant's; 404 when tenants make none.
 */
export async function putOwnType(
  deps: Deps,
  client: ClientDeps,
  name: string,
  definition: OwnJobType,
  by: Actor,
): Promise<void> {
  const { config, notifier } = deps;
  const { tenant } = client.db;
  checkOwnName(config, tenant, name);
  const errors = whyTooMuch(config, { tenant, definition });
  if (errors.length > 0) throw wrongFields(errors);
  const most = config.tenant_job_types;
  if (!(await putJobType(client.db, { name, definition }, most, { ...by, tenant }))) {
    const detail = `Tenant ${tenant} has ${most} job types (tenant_job_types): delete one first.`;
    throw new AppError("conflict", detail);
  }
  await withdrawFormer(deps, name, `Job type ${name} has changed meanwhile.`);
  // The polls of all agents learn what they may run, and which images are wanted.
  notifier.notify("queue");
}

/**
 * Removes a job type of the caller's tenant. Jobs and sessions that wait for it fail; running jobs finish.
 *
 * @throws AppError 404 when the tenant has none of this name; 409 when only the configuration has.
 */
export async function deleteOwnType(
  deps: Deps,
  client: ClientDeps,
  name: string,
  by: Actor,
): Promise<void> {
  const { config, notifier } = deps;
  const { tenant } = client.db;
  if (config.tenant_job_types === 0 || !(await dropJobType(client.db, name, { ...by, tenant }))) {
    checkOwnName(config, tenant, name);
    throw notFound(`Job type ${name}`);
  }
  // The configuration now has a job type of this name: what waits runs as that one.
  if (resolveJobType(config, name)) return;
  const message = `Job type ${name} was deleted.`;
  await withdrawFormer(deps, name, message);
  await failAwaiting(deps, name, { type: "config_error", message }, Number.MAX_SAFE_INTEGER);
  notifier.notify("queue");
}

/** Ends the queued builds of former definitions of a tenant's job type: all processes know the present one at once. */
async function withdrawFormer(deps: Deps, name: string, message: string): Promise<void> {
  const environment = await readEnvironment(deps, name);
  for (const build of await openBuilds(deps.db)) {
    const isFormer = environment === undefined || !isKnown(build, [environment]);
    if (build.jobType === name && isFormer) await withdraw(deps, build.id, message);
  }
}

/** The names of a tenant's job types begin with the tenant's name, so no answer reveals another tenant's job types. */
function checkOwnName(config: Config, tenant: string, name: string): void {
  if (config.tenant_job_types === 0)
    throw new AppError("not_found", "Tenants make no job types here (tenant_job_types is 0).");
  const configured = resolveJobType(config, name);
  const isOwn = name.startsWith(ownPrefix(tenant));
  if (configured && (isOwn || isFor(tenant, configured))) {
    throw new AppError(
      "conflict",
      `Job type ${name} is in the service's configuration: only its operator can change it.`,
    );
  }
  if (isOwn && JobTypeName.safeParse(name).success) return;
  const message = `must begin with ${ownPrefix(tenant)}, go on with lower-case letters and digits, and have at most 63 characters`;
  throw wrongField("name", message);
}

async function whyNotNow(
  { config, db, now }: Deps,
  environment: Environment,
): Promise<string | undefined> {
  const known = await listAgents(db);
  return whyNobodyBuilds(environment, servingAgents(known, config, now()));
}

/** Returns the build when it has ended, or on abort. Ends it if no agent is left to take it. */
async function waitForBuild(
  deps: Deps,
  id: string,
  environment: Environment,
  signal: AbortSignal,
): Promise<BuildRow> {
  const { db, notifier } = deps;
  const wakes = notifier.subscribe([`build:${id}`]);
  try {
    for (;;) {
      await sweepBuilds(deps);
      const build = await findBuildById(db, id);
      if (!build) throw new Error(`build ${id} is gone`);
      if (build.endedAt !== null || signal.aborted) return build;
      const obstacle = build.status === "queued" && (await whyNotNow(deps, environment));
      if (obstacle) await withdraw(deps, id, obstacle);
      else await wakes.next(backstopMs, signal);
    }
  } finally {
    wakes.close();
  }
}

/** Ends a build that nobody makes. */
async function withdraw({ db, notifier, now }: Deps, id: string, message: string): Promise<void> {
  const error = { type: "service_unavailable", message, phase: "startup" } as const;
  await advanceBuild(db, { id }, { kind: "withdraw", error }, now());
  notifier.notify(`build:${id}`);
}

function toResult({ jobType, digest, imageRef, error }: BuildRow): BuildResult {
  if (error) throw refusal(jobType, error);
  if (digest === null) throw new AppError("wait_timeout", "The client closed the connection.");
  const version = pinnedRef(jobType, digest);
  return { status: "built", job_type: jobType, version, digest, image_ref: imageRef };
}

function refusal(jobType: string, error: ExecutionError): AppError {
  if (error.type === "service_unavailable") return unavailable(error.message, retryAfterS);
  const isOwnFault = error.type === "dependency_error" || error.type === "build_error";
  const code = isOwnFault ? "build_failed" : "engine_failed";
  return new AppError(code, failureText(jobType, error.message), { error });
}

const failureText = (jobType: string, message: string): string =>
  `Job type ${jobType} was not built: ${message} (log: GET /job-types/${jobType}/build; airlock build ${jobType} builds again at once)`;

/** A build with its log, as the API shows it. */
export async function describeBuild({ db }: Deps, build: BuildRow): Promise<Build> {
  const { status, jobType, imageRef, digest, error, step, createdAt, startedAt, endedAt } = build;
  return {
    status,
    job_type: jobType,
    image_ref: imageRef,
    version: digest === null ? null : pinnedRef(jobType, digest),
    digest,
    error,
    step,
    steps: stepsOf(JSON.parse(build.spec) as BuildSpec).length,
    created_at: timestamp(createdAt),
    started_at: startedAt === null ? null : timestamp(startedAt),
    ended_at: endedAt === null ? null : timestamp(endedAt),
    log: decodeUtf8(await readBuildLog(db, build)),
  };
}

/** The job types whose images an agent may build: it has their labels, or can build for those that have. */
export async function buildableBy(
  deps: Deps,
  { agent }: PollRequest,
  environments: Environment[],
): Promise<Environment[]> {
  const serving = await servingKinds(deps, environments);
  const canShareImages = imageTransport(deps.config) !== "none";
  return environments.filter((one) => mayBuild(agent, one, serving, canShareImages));
}

/** Leases builds of these job types to an agent that is free to build. */
export async function takeBuilds(
  deps: Deps,
  request: PollRequest,
  lease: LeaseTerms,
  buildable: Environment[],
): Promise<{ leased: LeasedBuild[]; isMore: boolean }> {
  const { db } = deps;
  await sweepBuilds(deps);
  const undelivered = await undeliveredBuilds(db, lease, request.builds);
  const free = request.free_builds - undelivered.length;
  const of = buildable.map(({ jobType }) => ({ jobType: jobType.name, spec: buildSpec(jobType) }));
  const claimed = free > 0 ? await claimBuilds(db, lease, free, of) : [];
  const open = await openBuilds(db);
  const leased = await Promise.all(
    [...undelivered, ...claimed].map((build) => describe(deps, build)),
  );
  return {
    leased: leased.flat(),
    isMore: open.some((build) => build.status === "queued" && isKnown(build, buildable)),
  };
}

async function describe({ config, db }: Deps, build: BuildRow): Promise<LeasedBuild[]> {
  if (build.leaseId === null) return [];
  const before = await buildBefore(db, build);
  const spec = JSON.parse(build.spec) as BuildSpec;
  return [
    {
      lease_id: build.leaseId,
      attempt: build.attempt,
      correlation_id: build.correlationId,
      job_type: build.jobType,
      ...(spec.tenant !== undefined && { tenant: spec.tenant }),
      base_image: spec.base_image,
      steps: stepsOf(spec),
      // A request to build a built image again wants newer packages; after a failure, steps that succeeded are reused.
      fresh: before?.status === "built" && before.spec === build.spec,
      repository: imageRepository(build.imageRef, build.tag),
      tags: [...new Set([build.tag, "latest"])],
      timeout_s: config.build_timeout,
      share: imageTransport(config),
      share_max_bytes: config.max_image_bytes,
    },
  ];
}

/** Tells those who wait for the image of a job type that its build has failed. */
async function serveType(deps: Deps, name: string): Promise<void> {
  const [config, built] = await Promise.all([catalogue(deps), builtImages(deps.db)]);
  const environment = environmentOf(config, built, name);
  if (environment && awaitsImage(environment)) await serveAwaited(deps, [environment]);
}

/** Whether a build makes an image as one of these environments wants it now. */
const isKnown = (build: BuildRow, environments: Environment[]): boolean =>
  environments.some((one) => openBuildOf(one, [build]) !== undefined);

/** Longer than a rollout, during which API processes have two versions of the configuration. */
const rolloutMs = 10 * 60_000;

/**
 * Ends or requeues the builds whose agents are gone, ends those whose configuration no process seems to have any more,
 * and wakes the requests that wait for them.
 */
export async function sweepBuilds(deps: Deps): Promise<void> {
  const { db, now, log } = deps;
  const [expired, open] = await Promise.all([expireBuilds(db, now()), openBuilds(db)]);
  for (const build of expired) {
    const { status, jobType, correlationId } = build;
    log
      .with({ correlationId })
      .warn("lease of a build of {jobType} expired: now {status}", { jobType, status });
    await tellGivenUp(deps, build);
  }
  const old = open.filter(
    ({ status, createdAt }) => status === "queued" && createdAt <= now() - rolloutMs,
  );
  const environments = old.length > 0 ? await readEnvironments(deps) : [];
  for (const build of old) {
    if (isKnown(build, environments)) continue;
    const { id, jobType } = build;
    await withdraw(deps, id, `The configuration of job type ${jobType} has changed meanwhile.`);
  }
}

/** Wakes an agent that may take the build, or tells those who wait for its end. */
async function tellGivenUp(deps: Deps, { id, status, jobType }: BuildRow): Promise<void> {
  if (status === "queued") deps.notifier.notify("build", 0, jobType);
  else deps.notifier.notify(`build:${id}`);
  if (status === "failed") await serveType(deps, jobType);
}

/** An agent's posts for the lease of a build. They are idempotent, like the posts for an execution. */

/** @throws AppError 403 when the lease belongs to an agent with another token; 409 when it is gone. */
export async function requireBuildLease(
  { db }: Deps,
  leaseId: string,
  tokenHash: string,
): Promise<BuildRow> {
  return requireHeld(db, await findBuildByLease(db, leaseId), leaseId, tokenHash);
}

/**
 * Stores a chunk of a build's log, and the step that runs.
 *
 * @throws AppError 413 above the log's limit; 409 when the lease is gone, or other bytes were stored at that offset.
 */
export async function appendBuildLog(
  { db, now }: Deps,
  { id: buildId }: BuildRow,
  leaseId: string,
  { offset, data_base64, step }: BuildLogChunk,
): Promise<void> {
  const data = fromBase64(data_base64);
  if (offset + data.length > limits.buildLogMaxBytes) {
    throw new AppError("too_large", `A build's log has at most ${limits.buildLogMaxBytes} bytes.`);
  }
  const recorded = await recordBuildLog(db, { buildId, leaseId, offset, data }, now(), step);
  refuseUnless(recorded, leaseId, `at ${offset}`);
}

/**
 * Ends a build, and wakes the requests that wait for it or for its image.
 *
 * @throws AppError 409 when the lease is gone, or ended with another report.
 */
export async function recordBuildResult(
  deps: Deps,
  leaseId: string,
  report: BuildReport,
): Promise<void> {
  const { db, notifier, now, sha256 } = deps;
  const hash = await sha256(canonicalJson(report));
  const result = await finishBuild(db, leaseId, report, hash, now());
  if (result.kind === "not_found") throw leaseLost(leaseId);
  if (result.kind === "refused" && result.build.reportHash !== hash) throw leaseLost(leaseId);
  notifier.notify(`build:${result.build.id}`);
  if (report.status === "failed") await serveType(deps, result.build.jobType);
  // Jobs that waited for the image can run now.
  notifier.notify("queue");
}

export async function releaseBuildLease(
  deps: Deps,
  leaseId: string,
  { error, agent_stops }: ReleaseReport,
): Promise<void> {
  const event = agent_stops
    ? ({ kind: "leave", leaseId } as const)
    : ({ kind: "release", leaseId, error } as const);
  if (!(await giveUpBuild(deps, leaseId, event))) throw leaseLost(leaseId);
}

type GivesUp = Extract<BuildEvent, { kind: "release" | "leave" | "crash" }>;

/** Returns a build: it is queued again, or fails. False if the lease no longer holds. */
export async function giveUpBuild(deps: Deps, leaseId: string, event: GivesUp): Promise<boolean> {
  const { db, now } = deps;
  const result = await advanceBuild(db, { leaseId }, event, now());
  if (result.kind !== "changed") return false;
  await tellGivenUp(deps, result.build);
  return true;
}

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

/** How images reach the agents that did not build them. */
function imageTransport({ image_registry, max_image_bytes }: Deps["config"]): ImageTransport {
  if (image_registry !== undefined) return "registry";
  return max_image_bytes > 0 ? "store" : "none";
}

/** Stores an image's archive while it streams in, before its build is reported. Idempotent. */
export async function storeImageUpload(
  { config, db, artifacts, now }: Deps,
  build: BuildRow,
  leaseId: string,
  body: ReadableStream<Uint8Array>,
  announced: Hashed,
): Promise<void> {
  if (announced.sizeBytes > config.max_image_bytes) {
    throw new AppError("too_large", `Larger than max_image_bytes (${config.max_image_bytes}).`);
  }
  if (build.archiveSha256 !== null) {
    await body.cancel();
    return refuseUnless(
      build.archiveSha256 === announced.sha256 ? "recorded" : "conflict",
      leaseId,
      "as its image",
    );
  }
  if (build.status !== "running") throw leaseLost(leaseId);
  try {
    await artifacts.put(archiveKey({ ...build, leaseId }, announced.sha256), body, announced);
  } catch (error) {
    if (!(error instanceof UploadMismatch)) throw error;
    throw new AppError("invalid_request", error.message);
  }
  if (!(await recordArchive(db, leaseId, announced, now()))) throw leaseLost(leaseId);
}

/** Where agents can get an image. @throws AppError 404 when only the host that built it has it. */
export async function imageSource(deps: Deps, image: string): Promise<ImageSource> {
  const build = await findImage(deps.db, image);
  const type = build && resolveJobType(await catalogue(deps), build.jobType);
  if (!build || !type) throw notFound(`Image ${image}`);
  const { manifestDigest, imageRef, tag } = build;
  const registry_ref = manifestDigest && `${imageRepository(imageRef, tag)}@${manifestDigest}`;
  return { image, job_type: type.name, labels: type.labels, registry_ref };
}

/** The archive of an image. @throws AppError 404 when it is not stored. */
export async function storedArchive(
  { db, artifacts, now }: Deps,
  image: string,
): Promise<StoredFile> {
  const name = `The archive of image ${image}`;
  const build = await findImage(db, image);
  const sha256 = build?.archiveSha256;
  if (!build || !sha256) throw notFound(name);
  return fileForAgents(sha256, {
    name,
    size: build.archiveBytes ?? 0,
    open: async (range) => {
      const body = await artifacts.get(archiveKey(build, sha256), range);
      if (body) return body;
      // Who waits for the image must not wait for the store.
      await dropArchive(db, build.id, now());
      throw notFound(name);
    },
  });
}

/**
 * Marks archives that nobody needs for removal: those of a build that a newer build has replaced, and, a
 * day later, those that no job type uses any more. The day is for another API with a newer configuration.
 */
export async function dropArchives(deps: Deps): Promise<void> {
  const { db, now } = deps;
  const archived = await archivedBuilds(db);
  const config = await catalogue(deps);
  const last = archived.length > 0 ? await builtImages(db) : [];
  for (const { id, digest, endedAt, jobType, spec } of archived) {
    if (endedAt === null) continue;
    const isLast = last.some((one) => one.jobType === jobType && one.digest === digest);
    const asksFor = resolveJobType(config, jobType);
    const isAskedFor = asksFor !== undefined && buildSpec(asksFor) === spec;
    if (isLast && (isAskedFor || endedAt > now() - dayMs)) continue;
    await dropArchive(db, id, now() + hourMs);
  }
}

/** Key of an archive: ids and a hash, like an artifact's. It is removed with the lease or the build. */
export function archiveKey(
  { id, leaseId }: Pick<BuildRow, "id" | "leaseId">,
  sha256: string,
): string {
  return `${id}/${leaseId}/${sha256}`;
}

/** Name and tag of a job type's image; with a registry, the name under which it is pushed. */
function imageRefOf(
  { image_registry, image_prefix }: Pick<Config, "image_registry" | "image_prefix">,
  jobType: string,
  tag: string,
): string {
  const registry = image_registry === undefined ? "" : `${image_registry}/`;
  return `${registry}${image_prefix}-${jobType}:${tag}`;
}

/** The name without its tag. */
function imageRepository(imageRef: string, tag: string): string {
  return imageRef.slice(0, -tag.length - 1);
}
