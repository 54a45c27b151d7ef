import { canonicalJson } from "../../shared/json.ts";
import type { BuildLogChunk, BuildReport, ReleaseReport } from "../../shared/wire/agent/lease.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { Deps } from "../deps.ts";
import type { BuildEvent } from "../domain/build-transition.ts";
import { AppError } from "../errors.ts";
import { fromBase64, leaseLost, refuseUnless, requireHeld } from "../jobs/lease-post.ts";
import { advanceBuild, finishBuild } from "../store/builds/advance-build.ts";
import { recordBuildLog } from "../store/builds/build-log.ts";
import { findBuildByLease, type BuildRow } from "../store/builds/builds.ts";

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
 * Stores a chunk of a build's log.
 *
 * @throws AppError 413 above the log's limit; 409 when the lease is gone, or other bytes were stored at that offset.
 */
export async function appendBuildLog(
  { db, now }: Deps,
  { id: buildId }: BuildRow,
  leaseId: string,
  { offset, data_base64 }: BuildLogChunk,
): Promise<void> {
  const data = fromBase64(data_base64);
  if (offset + data.length > limits.buildLogMaxBytes) {
    throw new AppError("too_large", `A build's log has at most ${limits.buildLogMaxBytes} bytes.`);
  }
  const recorded = await recordBuildLog(db, { buildId, leaseId, offset, data }, now());
  refuseUnless(recorded, leaseId, `at ${offset}`);
}

/**
 * Ends a build, and wakes the requests that wait for it or for its image.
 *
 * @throws AppError 409 when the lease is gone, or ended with another report.
 */
export async function recordBuildResult(
  { db, notifier, now, sha256 }: Deps,
  leaseId: string,
  report: BuildReport,
): Promise<void> {
  const hash = await sha256(canonicalJson(report));
  const result = await finishBuild(db, leaseId, report, hash, now());
  if (result.kind === "not_found") throw leaseLost(leaseId);
  if (result.kind === "refused" && result.build.reportHash !== hash) throw leaseLost(leaseId);
  notifier.notify(`build:${result.build.id}`);
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
export async function giveUpBuild(
  { db, notifier, now }: Deps,
  leaseId: string,
  event: GivesUp,
): Promise<boolean> {
  const result = await advanceBuild(db, { leaseId }, event, now());
  if (result.kind !== "changed") return false;
  const { id, status } = result.build;
  notifier.notify(status === "queued" ? "queue" : `build:${id}`);
  return true;
}
