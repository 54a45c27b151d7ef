import { expect } from "vitest";
import type { ExecutionError } from "../../shared/wire/errors.ts";
import {
  isTerminal,
  type ExecutionStatus,
  type TerminalStatus,
} from "../../shared/wire/execution.ts";
import { limits } from "../../shared/wire/limits.ts";
import {
  lossOf,
  transition,
  type ExecutionEvent,
  type LeaseState,
  type Loss,
} from "../domain/transition.ts";
import type { LostAttempt } from "../store/schema.ts";
import type { Snapshot } from "./store-snapshot.ts";

/** What a test knows about an accepted execution. */
export interface Known {
  id: string;
  mode: "sync" | "async";
  key: string | undefined;
  payload: string;
  state: LeaseState;
  lost: LostAttempt[];
  /** Bodies posted for its present lease, to tell a repeat from a different body. */
  posts: Map<string, number>;
}

/** The expected executions: `transition` applied to each, in order of submission. */
export class StoreModel {
  now = 1_000_000;
  readonly known: Known[] = [];
  /** Every lease ever given, latest last. */
  readonly leases: string[] = [];
  readonly #executionOfLease = new Map<string, string>();

  byLease(leaseId: string): Known | undefined {
    return this.known.find(({ state }) => state.leaseId === leaseId);
  }

  byKey(key: string | undefined): Known | undefined {
    return key === undefined ? undefined : this.known.find((known) => known.key === key);
  }

  withStatus(status: ExecutionStatus): Known[] {
    return this.known.filter(({ state }) => state.status === status);
  }

  accept(known: Omit<Known, "state" | "posts" | "lost">): void {
    this.known.push({
      ...known,
      lost: [],
      posts: new Map(),
      state: { ...queued, availableAt: this.now },
    });
  }

  /** Executions that can be claimed, in order of submission. */
  claimable(): Known[] {
    return this.withStatus("queued").filter(({ state }) => state.availableAt <= this.now);
  }

  noteLease(leaseId: string, id: string): void {
    expect(this.#executionOfLease.get(leaseId), "a lease is never given twice").toBeUndefined();
    this.#executionOfLease.set(leaseId, id);
    this.leases.push(leaseId);
  }

  /** Applies an event by the state machine; false if it refuses. */
  apply(known: Known, event: ExecutionEvent): boolean {
    const result = transition(known.state, event, this.now);
    if (!result.ok) return false;
    if (event.kind === "claim") known.posts.clear();
    const loss = lossOf(event);
    if (loss) known.lost.push(lostAttempt(known.state, loss, this.now));
    known.state = { ...known.state, ...result.change };
    return true;
  }

  /** Whether a lease is held at this moment. */
  holds({ state }: Known): boolean {
    return state.status === "running" && (state.leaseExpiresAt ?? 0) > this.now;
  }
}

/** The names of the agents are their ids. */
function lostAttempt(state: LeaseState, loss: Loss, endedAt: number): LostAttempt {
  const { attempt, agentId, startedAt, codeStartedAt } = state;
  const agent = { agentId: agentId!, agent: agentId };
  return { attempt, ...agent, claimedAt: startedAt!, codeStartedAt, endedAt, ...loss };
}

/** An execution that has just been submitted. */
export const queued: LeaseState = {
  status: "queued",
  attempt: 0,
  maxAttempts: limits.maxAttempts,
  sessionId: null,
  leaseId: null,
  agentId: null,
  leaseExpiresAt: null,
  codeStartedAt: null,
  availableAt: 0,
  startedAt: null,
  endedAt: null,
  cancelRequested: false,
  error: null,
  exitCode: null,
};

/** Results that an agent may report, by the number of the body. */
export const outcomes = [
  { status: "succeeded", exit_code: 0, error: null },
  { status: "failed", exit_code: 1, error: failure("value_error") },
  { status: "timeout", exit_code: null, error: failure("execution_timeout") },
  { status: "oom", exit_code: 137, error: failure("oom") },
] as const satisfies {
  status: TerminalStatus;
  exit_code: number | null;
  error: ExecutionError | null;
}[];

function failure(type: ExecutionError["type"]): ExecutionError {
  return { type, message: type, phase: "execution" };
}

const dead = new Set<ExecutionStatus>(["failed", "timeout", "oom"]);

/** Invariants that must always be true, read from the database alone: docs/faults.md. */
export function checkInvariants(before: Snapshot, now: Snapshot, maxQueueSize: number): void {
  const { rows, letters, queued, miscounted } = now;
  for (const old of before.rows) {
    const row = rows.find(({ id }) => id === old.id);
    expect(row, "an accepted execution stays").toBeDefined();
    if (isTerminal(old.status)) expect(row, "a finished execution stays as it ended").toEqual(old);
  }
  for (const row of rows) {
    expect(row.attempt, "attempts").toBeLessThanOrEqual(limits.maxAttempts);
    const { artifacts } = now.shown.get(row.id)!;
    const winner = row.resultHash === null ? undefined : row.leaseId;
    for (const artifact of artifacts) expect(artifact.leaseId, "the winner's").toBe(winner);
  }
  const due = rows.filter(({ mode, status }) => mode === "async" && dead.has(status));
  expect(miscounted, "what tenants use is known").toEqual([]);
  expect(queued, "the length of the queue is known").toBe(
    rows.filter(({ status }) => status === "queued").length,
  );
  expect(letters.toSorted(), "one dead letter for each failed job").toEqual(
    due.map(({ id }) => id).toSorted(),
  );
  expectDistinct(rows.map(({ leaseId }) => leaseId));
  expectDistinct(rows.map(({ idempotencyKey }) => idempotencyKey));
  const fresh = rows.filter(({ status, attempt }) => status === "queued" && attempt === 0);
  expect(fresh.length, "the queue").toBeLessThanOrEqual(maxQueueSize);
}

function expectDistinct(values: (string | null)[]): void {
  const given = values.filter((value) => value !== null);
  expect(new Set(given).size).toBe(given.length);
}

/** The database has exactly the expected executions, each in the expected state. */
export function checkAgainstModel(model: StoreModel, { rows, shown }: Snapshot): void {
  expect(rows.map(({ id }) => id)).toEqual(model.known.map(({ id }) => id));
  for (const [i, row] of rows.entries()) {
    const known = model.known[i]!;
    const { artifacts, payload } = shown.get(row.id)!;
    expect(row).toMatchObject(known.state);
    expect(row.lostAttempts ?? [], "lost attempts").toEqual(known.lost);
    expect(new TextDecoder().decode(payload.stdout ?? undefined)).toBe(shownStdout(known));
    expect(artifacts.map(({ name }) => name)).toEqual(
      known.posts.has("result") && known.posts.has("upload") ? [artifactName] : [],
    );
  }
}

export const artifactName = "sub/a.txt";
export const resultText = (body: number): string => `result ${body}`;
export const logText = (body: number): string => `log ${body}`;

/** The stream of the result; without one, the log of the last lease before it was lost. */
function shownStdout({ state, posts }: Known): string {
  const result = posts.get("result");
  if (result !== undefined) return resultText(result);
  const log = posts.get("log");
  return log !== undefined && isTerminal(state.status) && state.leaseId ? logText(log) : "";
}
