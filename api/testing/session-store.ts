import { expect } from "vitest";
import { claimCalls } from "../agents/claim.ts";
import type { ExecutionRow } from "../jobs/sql.ts";
import { type NewExecution, submitExecution } from "../jobs/submit.ts";
import { claimSessions } from "../sessions/lease.ts";
import {
  advanceSession,
  createSession,
  type NewSession,
  type SessionRow,
  type SessionState,
} from "../sessions/sql.ts";
import type { Database } from "../store/database.ts";
import { readyReport } from "./scripted-agent.ts";
import { newExecution, offers } from "./temp-store.ts";

let made = 0;

/** A session that the store accepts, with these columns. */
export function newSession(columns: Partial<NewSession> = {}): NewSession {
  return {
    id: `00000000-0000-7000-9000-${String(++made).padStart(12, "0")}`,
    jobType: "default",
    requirements: [],
    startupTimeoutS: 60,
    env: { A: "b" },
    createdAt: 0,
    expiresAt: 1_000_000,
    idleTimeoutS: 100,
    metadata: null,
    idempotencyKey: null,
    submissionHash: "submission",
    keyId: null,
    correlationId: "correlation",
    clientIp: "127.0.0.1",
    traceparent: null,
    ...columns,
  };
}

/** What the state machine starts from. */
export const stateOfNew = (expiresAt: number, idleTimeoutS: number): SessionState => ({
  status: "queued",
  reason: null,
  error: null,
  attempt: 0,
  leaseId: null,
  agentId: null,
  leaseExpiresAt: null,
  jobRef: null,
  env: { A: "b" },
  containerRuntime: null,
  containerBackend: null,
  pythonVersion: null,
  startedAt: null,
  readyAt: null,
  usedAt: null,
  endedAt: null,
  expiresAt,
  idleTimeoutS,
});

export async function created(
  db: Database,
  columns: Partial<NewSession> = {},
): Promise<SessionRow> {
  const made = await createSession(db, newSession(columns), 1000);
  if (made.kind === "full") throw new Error("full");
  return made.session;
}

export const terms = (now: number, agentId = "a", ttl = 1000) => ({
  agentId,
  now,
  expiresAt: now + ttl,
});

/** A session that an agent holds from `now` on. */
export async function startingSession(
  db: Database,
  now = 1,
  columns: Partial<NewSession> = {},
): Promise<SessionRow & { leaseId: string }> {
  const { id } = await created(db, columns);
  const claimed = await claimSessions(db, terms(now), 1000, offers);
  const session = claimed.find((one) => one.id === id)!;
  return { ...session, leaseId: session.leaseId! };
}

export async function readySession(
  db: Database,
  now = 1,
  columns: Partial<NewSession> = {},
): Promise<SessionRow & { leaseId: string }> {
  const { leaseId } = await startingSession(db, now, columns);
  const event = { kind: "ready", leaseId, report: readyReport } as const;
  const result = await advanceSession(db, { leaseId }, event, now);
  if (result.kind !== "changed") throw new Error(result.kind);
  return { ...result.session, leaseId };
}

/** A call that waits in a session. */
export async function newCall(
  db: Database,
  sessionId: string,
  columns: Partial<NewExecution> = {},
): Promise<string> {
  const execution = newExecution({ sessionId, context: "default", maxAttempts: 1, ...columns });
  expect((await submitExecution(db, execution, 100)).kind).toBe("accepted");
  return execution.id;
}

/** A call that an agent runs. */
export async function runningCall(
  db: Database,
  sessionId: string,
  now = 1,
): Promise<ExecutionRow & { leaseId: string }> {
  const id = await newCall(db, sessionId);
  const [call] = await claimCalls(db, terms(now), sessionId);
  expect(call?.id).toBe(id);
  return { ...call!, leaseId: call!.leaseId! };
}
