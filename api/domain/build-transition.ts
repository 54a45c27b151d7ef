import type { buildStatuses } from "../../shared/wire/build.ts";
import type { ExecutionError } from "../../shared/wire/errors.ts";
import type { BuildReport } from "../../shared/wire/agent/lease.ts";
import { limits } from "../../shared/wire/limits.ts";
import { isLeased, queuedAgain } from "./lease.ts";

/** The columns of a build on which its transitions depend. Times are epoch milliseconds. */
export interface BuildState {
  status: (typeof buildStatuses)[number];
  attempt: number;
  leaseId: string | null;
  agentId: string | null;
  leaseExpiresAt: number | null;
  startedAt: number | null;
  endedAt: number | null;
  digest: string | null;
  pythonVersion: string | null;
  archiveSha256: string | null;
  archiveBytes: number | null;
  manifestDigest: string | null;
  error: ExecutionError | null;
}

export type BuildEvent =
  | { kind: "finish"; leaseId: string; report: BuildReport }
  /** A transient failure of the engine. */
  | { kind: "release"; leaseId: string; error: ExecutionError }
  | { kind: "expire" }
  /** The agent has ended in order without building it. */
  | { kind: "leave"; leaseId: string }
  /** The agent's process has died. */
  | { kind: "crash"; leaseId: string }
  /** No agent can build it, and its client gets an error that says so. */
  | { kind: "withdraw"; error: ExecutionError };

export type BuildRefusal = "finished" | "not_queued" | "lease_lost" | "not_due";
export type BuildTransition =
  | { ok: true; change: Partial<BuildState> }
  | { ok: false; refusal: BuildRefusal };

const lostTwice: ExecutionError = {
  type: "internal_error",
  message: `The agent was lost while it built, ${limits.maxAttempts} times.`,
  phase: "startup",
};

/** Applies an event to a build at a time (epoch ms): returns the columns that change, or a refusal. */
export function buildTransition(
  state: BuildState,
  event: BuildEvent,
  now: number,
): BuildTransition {
  if (state.status === "built" || state.status === "failed") return refuse("finished");
  switch (event.kind) {
    case "withdraw":
      return state.status === "queued" ? fail(event.error, now) : refuse("not_queued");
    case "expire":
      if (state.status !== "running" || isLeased(state, now)) return refuse("not_due");
      return tryAgain(state, lostTwice, now);
    case "leave":
      if (!holds(state, event, now)) return refuse("lease_lost");
      return change({ ...queuedAgain, ...noArchive, attempt: state.attempt - 1 });
    case "crash":
      if (!holds(state, event, now)) return refuse("lease_lost");
      return tryAgain(state, lostTwice, now);
    case "release":
      if (!holds(state, event, now)) return refuse("lease_lost");
      return tryAgain(state, event.error, now);
    case "finish":
      if (!holds(state, event, now)) return refuse("lease_lost");
      return finish(event.report, now);
  }
}

function holds(state: BuildState, { leaseId }: { leaseId: string }, now: number): boolean {
  return state.status === "running" && state.leaseId === leaseId && isLeased(state, now);
}

function finish(report: BuildReport, now: number): BuildTransition {
  if (report.status === "failed") return fail(report.error, now);
  const { status, digest } = report;
  const { python_version: pythonVersion, manifest_digest: manifestDigest } = report;
  const made = { digest, pythonVersion, manifestDigest };
  return change({ status, ...made, endedAt: now, leaseExpiresAt: null });
}

function tryAgain({ attempt }: BuildState, error: ExecutionError, now: number): BuildTransition {
  if (attempt >= limits.maxAttempts) return fail(error, now);
  return change({ ...queuedAgain, ...noArchive });
}

function fail(error: ExecutionError, now: number): BuildTransition {
  return change({ status: "failed", error, endedAt: now, leaseExpiresAt: null, ...noArchive });
}

const noArchive = { archiveSha256: null, archiveBytes: null };

function change(columns: Partial<BuildState>): BuildTransition {
  return { ok: true, change: columns };
}

function refuse(refusal: BuildRefusal): BuildTransition {
  return { ok: false, refusal };
}
