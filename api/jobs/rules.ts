import type { ExecutionError } from "../../shared/wire/errors.ts";
import {
  type ExecutionStatus,
  isTerminal,
  type LostOutcome,
  type TerminalStatus,
} from "../../shared/wire/executions.ts";
import { limits } from "../../shared/wire/limits.ts";

/** The columns of an execution on which its transitions depend. Times are epoch milliseconds. */
export interface LeaseState {
  status: ExecutionStatus;
  attempt: number;
  /** Leases that it may use up. */
  maxAttempts: number;
  /** Set of a call: it never waits for another lease, because its variables and files are in one session. */
  sessionId: string | null;
  leaseId: string | null;
  agentId: string | null;
  leaseExpiresAt: number | null;
  /** When the code of this attempt started. */
  codeStartedAt: number | null;
  /** Not claimable before this time. */
  availableAt: number;
  startedAt: number | null;
  endedAt: number | null;
  cancelRequested: boolean;
  error: ExecutionError | null;
  exitCode: number | null;
}

export type ExecutionEvent =
  | { kind: "claim"; leaseId: string; agentId: string; expiresAt: number }
  | { kind: "renew"; leaseId: string; expiresAt: number }
  | { kind: "start"; leaseId: string }
  | {
      kind: "complete";
      leaseId: string;
      status: TerminalStatus;
      error: ExecutionError | null;
      exitCode: number | null;
    }
  | { kind: "release"; leaseId: string; error: ExecutionError; retryAt: number }
  | { kind: "cancel" }
  | { kind: "expire" }
  /** The agent ends in order and has no running work left. */
  | { kind: "leave"; leaseId: string }
  /** The agent's process has died. */
  | { kind: "crash"; leaseId: string };

/** How an event ends a lease without a result. */
export interface Loss {
  outcome: LostOutcome;
  error: ExecutionError | null;
}

/** The loss of the present lease that an event means, if `transition` accepts it. */
export function lossOf(event: ExecutionEvent): Loss | undefined {
  switch (event.kind) {
    case "release":
      return { outcome: "released", error: event.error };
    case "leave":
      return { outcome: "agent_stopped", error: null };
    case "crash":
      return { outcome: "agent_crashed", error: null };
    case "expire":
      return { outcome: "lease_expired", error: null };
    case "cancel":
    case "claim":
    case "complete":
    case "renew":
    case "start":
      return undefined;
  }
}

export type Refusal = "finished" | "not_queued" | "not_running" | "lease_lost" | "not_due";
type Transition = { ok: true; change: Partial<LeaseState> } | { ok: false; refusal: Refusal };

/**
 * Applies an event to an execution at a time (epoch ms): returns the columns that change, or a refusal.
 * See docs/contract.md 5.2 and docs/architecture.md "The life of a job".
 */
export function transition(state: LeaseState, event: ExecutionEvent, now: number): Transition {
  if (isTerminal(state.status)) return refuse("finished");
  switch (event.kind) {
    case "claim":
      return claim(state, event, now);
    case "cancel":
      if (state.status === "queued") return end("cancelled", cancelled(state), null, now);
      return change({ cancelRequested: true });
    case "expire":
      return expire(state, now);
    case "renew":
      return whileLeased(state, event, now, () => change({ leaseExpiresAt: event.expiresAt }));
    case "start":
      return whileLeased(state, event, now, () =>
        change({ codeStartedAt: state.codeStartedAt ?? now }),
      );
    case "complete":
      return whileLeased(state, event, now, () =>
        end(event.status, event.error, event.exitCode, now),
      );
    case "release":
      return whileLeased(state, event, now, () => release(state, event, now));
    case "leave":
      return whileLeased(state, event, now, () => leave(state, now));
    case "crash":
      return whileLeased(state, event, now, () => lose(state, now));
  }
}

type Claim = Extract<ExecutionEvent, { kind: "claim" }>;
type Release = Extract<ExecutionEvent, { kind: "release" }>;

function claim(state: LeaseState, event: Claim, now: number): Transition {
  if (state.status !== "queued") return refuse("not_queued");
  if (state.availableAt > now) return refuse("not_due");
  return change({
    status: "running",
    attempt: state.attempt + 1,
    leaseId: event.leaseId,
    agentId: event.agentId,
    leaseExpiresAt: event.expiresAt,
    startedAt: now,
  });
}

function whileLeased(
  state: LeaseState,
  event: { leaseId: string },
  now: number,
  then: () => Transition,
): Transition {
  if (state.status !== "running") return refuse("not_running");
  if (state.leaseId !== event.leaseId || !isLeased(state, now)) return refuse("lease_lost");
  return then();
}

/** A failure of the engine before or while the code ran, never a failure of the code. */
function release(state: LeaseState, event: Release, now: number): Transition {
  if (state.cancelRequested) return end("cancelled", cancelled(state), null, now);
  if (state.sessionId !== null) return end("failed", event.error, null, now);
  // The agent says whether the code had begun; its report of the start may come later.
  const hasBegun = state.codeStartedAt !== null || event.error.phase === "execution";
  const most = hasBegun ? state.maxAttempts : limits.maxAttempts;
  if (state.attempt >= most) return end("failed", event.error, null, now);
  return requeue(event.retryAt);
}

function expire(state: LeaseState, now: number): Transition {
  if (state.status !== "running") return refuse("not_running");
  if (isLeased(state, now)) return refuse("not_due");
  return lose(state, now);
}

/** A job whose code has not started keeps its attempt, for another agent. */
function leave(state: LeaseState, now: number): Transition {
  const isTied = state.sessionId !== null || state.codeStartedAt !== null;
  if (isTied || state.cancelRequested) return lose(state, now);
  return requeue(now, { attempt: state.attempt - 1 });
}

function lose(state: LeaseState, now: number): Transition {
  if (state.cancelRequested) return end("cancelled", cancelled(state), null, now);
  if (state.attempt >= state.maxAttempts) return end("failed", lostForGood(state), null, now);
  return requeue(now);
}

function requeue(availableAt: number, columns: Partial<LeaseState> = {}): Transition {
  return change({ ...columns, ...queuedAgain, codeStartedAt: null, availableAt });
}

export const cancelledMessage = "Cancelled by request.";
export const lostMessage = `The agent was lost while it ran this job, ${limits.maxAttempts} times; the job is not tried again.`;
export const lostOnceMessage =
  "The agent was lost while it ran this job, whose max_attempts is 1; the job is not tried again.";

export const callLostMessage =
  "The agent was lost while it ran this call; a call is not tried again.";

function cancelled(state: LeaseState): ExecutionError {
  return { type: "cancelled", message: cancelledMessage, phase: phaseOf(state) };
}

function lostForGood(state: LeaseState): ExecutionError {
  return {
    type: "internal_error",
    message: whyLost(state),
    phase: phaseOf(state),
  };
}

function whyLost({ sessionId, maxAttempts }: LeaseState): string {
  if (sessionId !== null) return callLostMessage;
  return maxAttempts === 1 ? lostOnceMessage : lostMessage;
}

function phaseOf({ codeStartedAt }: LeaseState): ExecutionError["phase"] {
  return codeStartedAt === null ? "startup" : "execution";
}

function end(
  status: TerminalStatus,
  error: ExecutionError | null,
  exitCode: number | null,
  now: number,
): Transition {
  return change({ status, error, exitCode, endedAt: now, leaseExpiresAt: null });
}

function change(columns: Partial<LeaseState>): Transition {
  return { ok: true, change: columns };
}

function refuse(refusal: Refusal): Transition {
  return { ok: false, refusal };
}

/** What executions, builds and sessions have in common: one agent at a time holds the lease of each. */

/** The columns of what waits for another agent. */
export const queuedAgain = {
  status: "queued",
  leaseId: null,
  agentId: null,
  leaseExpiresAt: null,
  startedAt: null,
} as const;

export function isLeased(
  { leaseExpiresAt }: { leaseExpiresAt: number | null },
  now: number,
): boolean {
  return (leaseExpiresAt ?? 0) > now;
}
