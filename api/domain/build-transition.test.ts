import { describe, expect, test } from "vitest";
import { type BuildEvent, type BuildState, buildTransition } from "./build-transition.ts";

const now = 1000;
const error = { type: "docker_error", message: "gone", phase: "startup" } as const;
const lease = { leaseId: "lease", agentId: "agent", startedAt: 500 };

const fresh: BuildState = {
  status: "queued",
  attempt: 0,
  leaseId: null,
  agentId: null,
  leaseExpiresAt: null,
  startedAt: null,
  endedAt: null,
  digest: null,
  pythonVersion: null,
  archiveSha256: null,
  archiveBytes: null,
  manifestDigest: null,
  error: null,
};

const states: Record<string, BuildState> = {
  queued: fresh,
  running: { ...fresh, ...lease, status: "running", attempt: 1, leaseExpiresAt: now + 1 },
  "running, last attempt": {
    ...fresh,
    ...lease,
    status: "running",
    attempt: 2,
    leaseExpiresAt: now + 1,
  },
  expired: { ...fresh, ...lease, status: "running", attempt: 1, leaseExpiresAt: now },
  "expired, last attempt": {
    ...fresh,
    ...lease,
    status: "running",
    attempt: 2,
    leaseExpiresAt: now,
  },
  built: { ...fresh, ...lease, status: "built", attempt: 1, endedAt: 900, digest: "d" },
  failed: { ...fresh, ...lease, status: "failed", attempt: 1, endedAt: 900, error },
};

const success = {
  status: "built",
  digest: "sha256:1",
  python_version: "3.13.5",
  manifest_digest: null,
} as const;

const events: Record<string, BuildEvent> = {
  success: { kind: "finish", leaseId: "lease", report: success },
  failure: { kind: "finish", leaseId: "lease", report: { status: "failed", error } },
  release: { kind: "release", leaseId: "lease", error },
  expire: { kind: "expire" },
  withdraw: { kind: "withdraw", error },
  "success of another lease": { kind: "finish", leaseId: "other", report: success },
  "release of another lease": { kind: "release", leaseId: "other", error },
};

const built = {
  status: "built",
  digest: "sha256:1",
  manifestDigest: null,
  pythonVersion: "3.13.5",
  endedAt: now,
  leaseExpiresAt: null,
};
/** An attempt that did not end well leaves no stored image. */
const noArchive = { archiveSha256: null, archiveBytes: null };
const failed = { status: "failed", error, endedAt: now, leaseExpiresAt: null, ...noArchive };
const queued = {
  ...noArchive,
  status: "queued",
  leaseId: null,
  agentId: null,
  leaseExpiresAt: null,
  startedAt: null,
};
const lostTwice = {
  ...failed,
  error: {
    type: "internal_error",
    message: "The agent was lost while it built, 2 times.",
    phase: "startup",
  },
};

/** What each event does in each state: the columns that change, or the refusal. */
const table: Record<string, Record<string, object | string>> = {
  queued: {
    success: "lease_lost",
    failure: "lease_lost",
    release: "lease_lost",
    expire: "not_due",
    withdraw: failed,
  },
  running: {
    success: built,
    failure: failed,
    release: queued,
    expire: "not_due",
    withdraw: "not_queued",
  },
  "running, last attempt": {
    success: built,
    failure: failed,
    release: failed,
    expire: "not_due",
    withdraw: "not_queued",
  },
  expired: {
    success: "lease_lost",
    failure: "lease_lost",
    release: "lease_lost",
    expire: queued,
    withdraw: "not_queued",
  },
  "expired, last attempt": {
    success: "lease_lost",
    failure: "lease_lost",
    release: "lease_lost",
    expire: lostTwice,
    withdraw: "not_queued",
  },
};

describe.each(Object.entries(states))("a build that is %s", (state, build) => {
  test.each(Object.entries(events))("on %s", (name, event) => {
    const over = build.status === "built" || build.status === "failed";
    const other = over ? "finished" : "lease_lost";
    const expected = table[state]?.[name] ?? other;
    expect(buildTransition(build, event, now)).toEqual(
      typeof expected === "string"
        ? { ok: false, refusal: expected }
        : { ok: true, change: expected },
    );
  });
});
