import { expect, test } from "vitest";
import type { ExecutionError } from "../../shared/wire/errors.ts";
import {
  type ExecutionStatus,
  executionStatuses,
  type TerminalStatus,
  terminalStatuses,
} from "../../shared/wire/executions.ts";
import { limits } from "../../shared/wire/limits.ts";
import { queued as submitted } from "../testing/store-model.ts";
import { type ExecutionEvent, type LeaseState, transition } from "./rules.ts";

/**
 * What each event does to an execution in each state. A state is a status with all that an event
 * can tell apart in it: the attempt, whether the code `began`, whether a cancel was `asked`,
 * whether the lease has `expired`. A word without underscore is a change, described below; the
 * others are refusals. `stale` stands for every post of another lease.
 */
const table = `
                                | claim       renew        start        complete     release      cancel     expire       leave        crash        stale
  queued                        | claimed      not_running not_running  not_running  not_running  cancelled  not_running  not_running  not_running  not_running
  queued later                  | not_due      not_running not_running  not_running  not_running  cancelled  not_running  not_running  not_running  not_running
  queued again                  | claimed      not_running not_running  not_running  not_running  cancelled  not_running  not_running  not_running  not_running
  running 1                     | not_queued   renewed     began        ended        requeued     asked      not_due      returned     retried      lease_lost
  running 1 expired             | not_queued   lease_lost  lease_lost   lease_lost   lease_lost   asked      retried      lease_lost   lease_lost   lease_lost
  running 1 asked               | not_queued   renewed     began        ended        cancelled    asked      not_due      cancelled    cancelled    lease_lost
  running 1 asked expired       | not_queued   lease_lost  lease_lost   lease_lost   lease_lost   asked      cancelled    lease_lost   lease_lost   lease_lost
  running 1 began               | not_queued   renewed     repeated     ended        requeued     asked      not_due      retried      retried      lease_lost
  running 1 began expired       | not_queued   lease_lost  lease_lost   lease_lost   lease_lost   asked      retried      lease_lost   lease_lost   lease_lost
  running 1 began asked         | not_queued   renewed     repeated     ended        cancelled    asked      not_due      cancelled    cancelled    lease_lost
  running 1 began asked expired | not_queued   lease_lost  lease_lost   lease_lost   lease_lost   asked      cancelled    lease_lost   lease_lost   lease_lost
  running 2                     | not_queued   renewed     began        ended        failed       asked      not_due      returned     lost         lease_lost
  running 2 expired             | not_queued   lease_lost  lease_lost   lease_lost   lease_lost   asked      lost         lease_lost   lease_lost   lease_lost
  running 2 asked               | not_queued   renewed     began        ended        cancelled    asked      not_due      cancelled    cancelled    lease_lost
  running 2 asked expired       | not_queued   lease_lost  lease_lost   lease_lost   lease_lost   asked      cancelled    lease_lost   lease_lost   lease_lost
  running 2 began               | not_queued   renewed     repeated     ended        failed       asked      not_due      lost         lost         lease_lost
  running 2 began expired       | not_queued   lease_lost  lease_lost   lease_lost   lease_lost   asked      lost         lease_lost   lease_lost   lease_lost
  running 2 began asked         | not_queued   renewed     repeated     ended        cancelled    asked      not_due      cancelled    cancelled    lease_lost
  running 2 began asked expired | not_queued   lease_lost  lease_lost   lease_lost   lease_lost   asked      cancelled    lease_lost   lease_lost   lease_lost
  succeeded                     | finished     finished    finished     finished     finished     finished   finished     finished     finished     finished
  failed                        | finished     finished    finished     finished     finished     finished   finished     finished     finished     finished
  timeout                       | finished     finished    finished     finished     finished     finished   finished     finished     finished     finished
  oom                           | finished     finished    finished     finished     finished     finished   finished     finished     finished     finished
  cancelled                     | finished     finished    finished     finished     finished     finished   finished     finished     finished     finished
`;

const now = 1_000_000;
const next = now + 30_000;
const error: ExecutionError = { type: "docker_error", message: "no image", phase: "startup" };

const queued: LeaseState = { ...submitted, availableAt: now };

function running(attempt: number, ...flags: string[]): LeaseState {
  return {
    ...queued,
    status: "running",
    attempt,
    leaseId: "lease",
    agentId: "agent",
    leaseExpiresAt: flags.includes("expired") ? now : now + 1,
    codeStartedAt: flags.includes("began") ? now - 5 : null,
    startedAt: now - 10,
    cancelRequested: flags.includes("asked"),
  };
}

function ended(status: TerminalStatus): LeaseState {
  return {
    ...running(1, "began"),
    status,
    leaseExpiresAt: null,
    endedAt: now - 1,
    error: status === "succeeded" ? null : error,
  };
}

/** Every state of a status, by its name in the table. */
function statesOf(status: ExecutionStatus): Record<string, LeaseState> {
  switch (status) {
    case "queued":
      return {
        queued,
        "queued later": { ...queued, availableAt: now + 1 },
        "queued again": { ...queued, attempt: 1 },
      };
    case "running":
      return Object.fromEntries(
        Array.from({ length: limits.maxAttempts }, (_, i) => i + 1).flatMap((attempt) =>
          subsets(["began", "asked", "expired"]).map((flags) => [
            ["running", attempt, ...flags].join(" "),
            running(attempt, ...flags),
          ]),
        ),
      );
    case "succeeded":
    case "failed":
    case "timeout":
    case "oom":
    case "cancelled":
      return { [status]: ended(status) };
  }
}

function subsets<T>([first, ...rest]: T[]): T[][] {
  if (first === undefined) return [[]];
  const without = subsets(rest);
  return [...without, ...without.map((subset) => [first, ...subset])];
}

const states = Object.assign({}, ...executionStatuses.map(statesOf)) as Record<string, LeaseState>;

type EventOf<K extends ExecutionEvent["kind"]> = Extract<ExecutionEvent, { kind: K }>;
type Events = { [K in ExecutionEvent["kind"]]: EventOf<K>[] };

/** Every kind of event: the compiler refuses one that is missing. */
const ownEvents: Events = {
  claim: [{ kind: "claim", leaseId: "next", agentId: "other", expiresAt: next }],
  renew: [{ kind: "renew", leaseId: "lease", expiresAt: next }],
  start: [{ kind: "start", leaseId: "lease" }],
  complete: terminalStatuses.map((status) => ({
    kind: "complete",
    leaseId: "lease",
    status,
    error: status === "succeeded" ? null : error,
    exitCode: status === "timeout" ? null : 3,
  })),
  release: [{ kind: "release", leaseId: "lease", error, retryAt: now + 7 }],
  cancel: [{ kind: "cancel" }],
  expire: [{ kind: "expire" }],
  leave: [{ kind: "leave", leaseId: "lease" }],
  crash: [{ kind: "crash", leaseId: "lease" }],
};

const { renew, start, complete, release, leave, crash } = ownEvents;
const posts = [renew, start, complete, release, leave, crash].flat();
const events: Record<string, ExecutionEvent[]> = {
  ...ownEvents,
  stale: posts.map((post) => ({ ...post, leaseId: "another" })),
};

type Change = (state: LeaseState, event: ExecutionEvent) => Partial<LeaseState>;

const end = (columns: Partial<LeaseState>): Partial<LeaseState> => ({
  endedAt: now,
  leaseExpiresAt: null,
  exitCode: null,
  ...columns,
});
const phaseOf = (state: LeaseState) => (state.codeStartedAt === null ? "startup" : "execution");
const backInQueue = (availableAt: number): Partial<LeaseState> => ({
  status: "queued",
  availableAt,
  leaseId: null,
  agentId: null,
  leaseExpiresAt: null,
  codeStartedAt: null,
  startedAt: null,
});

/** The columns that each word of the table stands for; no other column changes. */
const changes: Record<string, Change> = {
  claimed: ({ attempt }) => ({
    status: "running",
    attempt: attempt + 1,
    leaseId: "next",
    agentId: "other",
    leaseExpiresAt: next,
    startedAt: now,
  }),
  renewed: () => ({ leaseExpiresAt: next }),
  began: () => ({ codeStartedAt: now }),
  repeated: ({ codeStartedAt }) => ({ codeStartedAt }),
  asked: () => ({ cancelRequested: true }),
  requeued: () => backInQueue(now + 7),
  retried: () => backInQueue(now),
  returned: ({ attempt }) => ({ ...backInQueue(now), attempt: attempt - 1 }),
  ended: (_state, event) => {
    const { status, error, exitCode } = event as EventOf<"complete">;
    return end({ status, error, exitCode });
  },
  failed: () => end({ status: "failed", error }),
  lost: (state) =>
    end({
      status: "failed",
      error: {
        type: "internal_error",
        message: "The agent was lost while it ran this job, 2 times; the job is not tried again.",
        phase: phaseOf(state),
      },
    }),
  cancelled: (state) =>
    end({
      status: "cancelled",
      error: { type: "cancelled", message: "Cancelled by request.", phase: phaseOf(state) },
    }),
};

const [head = "", ...lines] = table.trim().split("\n");
const columns = head.replace("|", "").trim().split(/\s+/);
const rows = lines.map((line) => {
  const [name = "", outcomes = ""] = line.split("|").map((part) => part.trim());
  return { name, outcomes: outcomes.split(/\s+/) };
});
const cells = rows.flatMap(({ name, outcomes }) =>
  columns.map((kind, i) => [name, kind, outcomes[i] ?? "(missing)"] as const),
);

test("the table has every state once, and every kind of event", () => {
  expect(rows.map((row) => row.name).sort()).toEqual(Object.keys(states).sort());
  expect(columns).toEqual(Object.keys(events));
});

test.each(cells)("%s + %s: %s", (name, kind, outcome) => {
  const state = states[name]!;
  for (const event of events[kind]!) {
    const change = changes[outcome];
    expect(transition(state, event, now)).toEqual(
      change ? { ok: true, change: change(state, event) } : { ok: false, refusal: outcome },
    );
  }
});
