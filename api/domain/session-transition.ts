import type { agentsEnds, SessionReady } from "../../shared/wire/agent/session.ts";
import type { sessionStatuses } from "../../shared/wire/client/session.ts";
import type { EndReason } from "../../shared/wire/end-reason.ts";
import type { ExecutionError } from "../../shared/wire/errors.ts";
import { limits } from "../../shared/wire/limits.ts";
import { isLeased, queuedAgain } from "./lease.ts";

/** The columns of a session on which its transitions depend. Times are epoch milliseconds. */
export interface SessionState {
  status: (typeof sessionStatuses)[number];
  reason: EndReason | null;
  error: ExecutionError | null;
  attempt: number;
  leaseId: string | null;
  agentId: string | null;
  leaseExpiresAt: number | null;
  jobRef: string | null;
  env: Record<string, string> | null;
  containerRuntime: string | null;
  containerBackend: SessionReady["container_backend"] | null;
  pythonVersion: string | null;
  startedAt: number | null;
  readyAt: number | null;
  usedAt: number | null;
  endedAt: number | null;
  expiresAt: number;
  idleTimeoutS: number | null;
}

export type SessionEvent =
  | { kind: "ready"; leaseId: string; report: SessionReady }
  /** The agent gives back a session that was never ready. */
  | { kind: "release"; leaseId: string; error: ExecutionError }
  /** The agent's sandbox of a ready session is gone. */
  | { kind: "end"; leaseId: string; reason: (typeof agentsEnds)[number]; error: ExecutionError }
  /** The agent has ended in order. */
  | { kind: "leave"; leaseId: string }
  /** The agent's process has died. */
  | { kind: "crash"; leaseId: string }
  | { kind: "expire" }
  /** No call has been open for the idle timeout: whoever applies it checks that no call is open. */
  | { kind: "idle" }
  | { kind: "lifetime" }
  | { kind: "delete" };

export type SessionRefusal = "ended" | "lease_lost" | "not_starting" | "not_ready" | "not_due";
export type SessionTransition =
  | { ok: true; change: Partial<SessionState> }
  | { ok: false; refusal: SessionRefusal };

/**
 * Applies an event to a session at a time (epoch ms): returns the columns that change, or a refusal. Before it is
 * ready, a session may get another agent. After that it ends with its interpreter, and never gets a new one.
 */
export function sessionTransition(
  state: SessionState,
  event: SessionEvent,
  now: number,
): SessionTransition {
  if (state.status === "ended") return refuse("ended");
  switch (event.kind) {
    case "delete":
      return end("deleted", null, now);
    case "lifetime":
      return state.expiresAt <= now ? end("lifetime", null, now) : refuse("not_due");
    case "idle":
      return isIdle(state, now) ? end("idle", null, now) : refuse("not_due");
    case "expire":
      if (state.status === "queued" || isLeased(state, now)) return refuse("not_due");
      return lose(state, now);
    case "crash":
      return holds(state, event, now) ? lose(state, now) : refuse("lease_lost");
    case "leave":
      if (!holds(state, event, now)) return refuse("lease_lost");
      if (state.status === "ready") return end("agent_stopped", stopped, now);
      return change({ ...queuedAgain, attempt: state.attempt - 1 });
    case "release":
      if (!holds(state, event, now)) return refuse("lease_lost");
      return state.status === "starting"
        ? tryAgain(state, event.error, now)
        : refuse("not_starting");
    case "end":
      if (!holds(state, event, now)) return refuse("lease_lost");
      return state.status === "ready" ? end(event.reason, event.error, now) : refuse("not_ready");
    case "ready":
      if (!holds(state, event, now)) return refuse("lease_lost");
      return state.status === "starting" ? becomeReady(event.report, now) : refuse("not_starting");
  }
}

/** When a ready session ends unless it gets a call; infinite if it has no such time. */
export function idleAt({ status, readyAt, usedAt, idleTimeoutS }: SessionState): number {
  if (status !== "ready" || idleTimeoutS === null) return Infinity;
  return Math.max(readyAt ?? 0, usedAt ?? 0) + idleTimeoutS * 1000;
}

function isIdle(state: SessionState, now: number): boolean {
  return idleAt(state) <= now;
}

function holds(state: SessionState, { leaseId }: { leaseId: string }, now: number): boolean {
  return state.leaseId === leaseId && isLeased(state, now);
}

function becomeReady(report: SessionReady, now: number): SessionTransition {
  return change({
    status: "ready",
    readyAt: now,
    ...(report.job_ref !== null && { jobRef: report.job_ref }),
    containerRuntime: report.container_runtime,
    containerBackend: report.container_backend,
    pythonVersion: report.python_version,
  });
}

function lose(state: SessionState, now: number): SessionTransition {
  if (state.status === "ready") return end("agent_lost", lost, now);
  return tryAgain(state, lostTwice, now);
}

function tryAgain(
  { attempt }: SessionState,
  error: ExecutionError,
  now: number,
): SessionTransition {
  return attempt >= limits.maxAttempts ? end("start_failed", error, now) : change(queuedAgain);
}

function failure(message: string, phase: ExecutionError["phase"]): ExecutionError {
  return { type: "internal_error", message, phase };
}
const lost = failure("The agent that held the session was lost.", "execution");
const stopped = failure("The agent that held the session was stopped.", "execution");
const lostTwice = failure(
  `The agent was lost while it started the session, ${limits.maxAttempts} times.`,
  "startup",
);

function end(reason: EndReason, error: ExecutionError | null, now: number): SessionTransition {
  return change({ status: "ended", reason, error, endedAt: now, leaseExpiresAt: null, env: null });
}

function change(columns: Partial<SessionState>): SessionTransition {
  return { ok: true, change: columns };
}

function refuse(refusal: SessionRefusal): SessionTransition {
  return { ok: false, refusal };
}
