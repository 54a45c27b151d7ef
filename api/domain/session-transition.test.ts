import { describe, expect, test } from "vitest";
import { stateOfNew } from "../testing/session-store.ts";
import { type SessionEvent, type SessionState, sessionTransition } from "./session-transition.ts";

const now = 100_000;
const error = { type: "docker_error", message: "gone", phase: "startup" } as const;
const report = {
  job_ref: "ref",
  container_runtime: "runc",
  container_backend: "zygote",
  python_version: "3.13.2",
} as const;

const queued = stateOfNew(now + 1, 10);
const held = { leaseId: "lease", agentId: "agent", startedAt: 1, leaseExpiresAt: now + 1 };
const starting: SessionState = { ...queued, ...held, status: "starting", attempt: 1 };
const ready: SessionState = { ...starting, status: "ready", readyAt: now - 5000 };

const states: Record<string, SessionState> = {
  queued,
  "queued, its lifetime over": { ...queued, expiresAt: now },
  starting,
  "starting, last attempt": { ...starting, attempt: 2 },
  "starting, its lease expired": { ...starting, leaseExpiresAt: now },
  "starting for the last time, its lease expired": {
    ...starting,
    attempt: 2,
    leaseExpiresAt: now,
  },
  ready,
  "ready, not used for long": { ...ready, readyAt: now - 10_000 },
  "ready for long, but used": { ...ready, readyAt: 1, usedAt: now - 9999 },
  "ready for ever": { ...ready, readyAt: 1, idleTimeoutS: null },
  "ready, its lifetime over": { ...ready, expiresAt: now },
  "ready, its lease expired": { ...ready, leaseExpiresAt: now },
  ended: { ...ready, status: "ended", reason: "idle", endedAt: 1, leaseExpiresAt: null, env: null },
};

const events: Record<string, SessionEvent> = {
  ready: { kind: "ready", leaseId: "lease", report },
  release: { kind: "release", leaseId: "lease", error },
  end: { kind: "end", leaseId: "lease", reason: "out_of_memory", error },
  leave: { kind: "leave", leaseId: "lease" },
  crash: { kind: "crash", leaseId: "lease" },
  expire: { kind: "expire" },
  idle: { kind: "idle" },
  lifetime: { kind: "lifetime" },
  delete: { kind: "delete" },
  "ready of another lease": { kind: "ready", leaseId: "other", report },
  "release of another lease": { kind: "release", leaseId: "other", error },
  "end of another lease": { kind: "end", leaseId: "other", reason: "engine_lost", error },
  "leave of another lease": { kind: "leave", leaseId: "other" },
  "crash of another lease": { kind: "crash", leaseId: "other" },
};

const ended = (reason: string, why: object | null = null) => ({
  status: "ended",
  reason,
  error: why,
  endedAt: now,
  leaseExpiresAt: null,
  env: null,
});
const again = {
  status: "queued",
  leaseId: null,
  agentId: null,
  leaseExpiresAt: null,
  startedAt: null,
};
const internal = (message: string, phase: string) => ({ type: "internal_error", message, phase });
const lost = ended(
  "agent_lost",
  internal("The agent that held the session was lost.", "execution"),
);
const lostTwice = ended(
  "start_failed",
  internal("The agent was lost while it started the session, 2 times.", "startup"),
);
const stopped = ended(
  "agent_stopped",
  internal("The agent that held the session was stopped.", "execution"),
);
const becomesReady = {
  status: "ready",
  readyAt: now,
  jobRef: "ref",
  containerRuntime: "runc",
  containerBackend: "zygote",
  pythonVersion: "3.13.2",
};

const whenStarting = {
  ready: becomesReady,
  release: again,
  end: "not_ready",
  leave: { ...again, attempt: 0 },
  crash: again,
};
const whenReady = {
  ready: "not_starting",
  release: "not_starting",
  end: ended("out_of_memory", error),
  leave: stopped,
  crash: lost,
};

/** What each event does in each state: the columns that change, or the refusal. Others are below. */
const table: Record<string, Record<string, object | string>> = {
  queued: {},
  "queued, its lifetime over": { lifetime: ended("lifetime") },
  starting: whenStarting,
  "starting, last attempt": {
    ...whenStarting,
    release: ended("start_failed", error),
    leave: { ...again, attempt: 1 },
    crash: lostTwice,
  },
  "starting, its lease expired": { expire: again },
  "starting for the last time, its lease expired": { expire: lostTwice },
  ready: whenReady,
  "ready, not used for long": { ...whenReady, idle: ended("idle") },
  "ready for long, but used": whenReady,
  "ready for ever": whenReady,
  "ready, its lifetime over": { ...whenReady, lifetime: ended("lifetime") },
  "ready, its lease expired": { expire: lost },
};

function otherwise(event: SessionEvent): object | string {
  if (event.kind === "delete") return ended("deleted");
  return ["expire", "idle", "lifetime"].includes(event.kind) ? "not_due" : "lease_lost";
}

describe.each(Object.entries(states))("a session that is %s", (name, state) => {
  test.each(Object.entries(events))("on %s", (what, event) => {
    const over = state.status === "ended" ? "ended" : undefined;
    const expected = over ?? table[name]?.[what] ?? otherwise(event);
    expect(sessionTransition(state, event, now)).toEqual(
      typeof expected === "string"
        ? { ok: false, refusal: expected }
        : { ok: true, change: expected },
    );
  });
});
