import type { Build, BuildResult } from "../../shared/wire/build.ts";
import { decodeUtf8 } from "../../shared/bytes.ts";
import type { ExecutionError } from "../../shared/wire/errors.ts";
import type { Deps } from "../deps.ts";
import { buildSpec, pinnedRef, type Environment } from "../domain/environment.ts";
import { imageRefOf } from "../domain/image-name.ts";
import { servingAgents, whyNobodyBuilds } from "../domain/agents/placement.ts";
import { timestamp } from "../jobs/record.ts";
import { AppError, unavailable } from "../errors.ts";
import type { Actor } from "../store/audit.ts";
import { advanceBuild } from "../store/builds/advance-build.ts";
import { listAgents } from "../store/agents/agents.ts";
import { readBuildLog } from "../store/builds/build-log.ts";
import { findBuildById, requestBuild, type BuildRow } from "../store/builds/builds.ts";
import { sweepBuilds } from "./take-builds.ts";
import { backstopMs } from "../waiting.ts";

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
  const { config, db, notifier, newId } = deps;
  const { jobType } = environment;
  const obstacle = await whyNotNow(deps, environment);
  if (obstacle !== undefined) throw unavailable(obstacle, retryAfterS);
  const tag = versionTag ?? "latest";
  const build = {
    id: newId(),
    jobType: jobType.name,
    tag,
    spec: buildSpec(jobType),
    imageRef: imageRefOf(config, jobType.name, tag),
    correlationId: by.correlationId,
    createdAt: by.at,
  };
  const id = await requestBuild(db, build, by);
  notifier.notify("queue");
  return toResult(await waitForBuild(deps, id, environment, signal));
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
  const { db, notifier, now } = deps;
  const wakes = notifier.subscribe([`build:${id}`]);
  try {
    for (;;) {
      await sweepBuilds(deps);
      const build = await findBuildById(db, id);
      if (!build) throw new Error(`build ${id} is gone`);
      if (build.endedAt !== null || signal.aborted) return build;
      const obstacle = build.status === "queued" && (await whyNotNow(deps, environment));
      if (obstacle) {
        const error = { type: "service_unavailable", message: obstacle, phase: "startup" } as const;
        await advanceBuild(db, { id }, { kind: "withdraw", error }, now());
        notifier.notify(`build:${id}`);
      } else {
        await wakes.next(backstopMs, signal);
      }
    }
  } finally {
    wakes.close();
  }
}

function toResult({ jobType, digest, imageRef, error }: BuildRow): BuildResult {
  if (error) throw refusal(jobType, error);
  if (digest === null) throw new AppError("wait_timeout", "The client closed the connection.");
  const version = pinnedRef(jobType, digest);
  return { status: "built", job_type: jobType, version, digest, image_ref: imageRef };
}

function refusal(jobType: string, error: ExecutionError): AppError {
  if (error.type === "service_unavailable") return unavailable(error.message, retryAfterS);
  const code = error.type === "dependency_error" ? "build_failed" : "engine_failed";
  return new AppError(
    code,
    `Job type ${jobType} was not built: ${error.message} (log: GET /job-types/${jobType}/build)`,
    { error },
  );
}

/** A build with its log, as the API shows it. */
export async function describeBuild({ db }: Deps, build: BuildRow): Promise<Build> {
  const { status, jobType, imageRef, digest, error, createdAt, startedAt, endedAt } = build;
  return {
    status,
    job_type: jobType,
    image_ref: imageRef,
    version: digest === null ? null : pinnedRef(jobType, digest),
    digest,
    error,
    created_at: timestamp(createdAt),
    started_at: startedAt === null ? null : timestamp(startedAt),
    ended_at: endedAt === null ? null : timestamp(endedAt),
    log: decodeUtf8(await readBuildLog(db, build)),
  };
}
