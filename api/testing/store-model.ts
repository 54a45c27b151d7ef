import { copyFileSync, existsSync, mkdtempSync, rmSync, statSync, truncateSync } from "node:fs";
import { appendFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createClient } from "@libsql/client";
import { expect } from "vitest";
import type { ExecutionError } from "../../shared/wire/errors.ts";
import {
  type ExecutionStatus,
  isTerminal,
  type TerminalStatus,
} from "../../shared/wire/executions.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { Result } from "../jobs/lease.ts";
import {
  type ExecutionEvent,
  type LeaseState,
  type Loss,
  lossOf,
  transition,
} from "../jobs/rules.ts";
import { type FullExecution, readQueueStats, withPayloads } from "../jobs/sql.ts";
import { database, type Database } from "../store/database.ts";
import { deadLetters, executions, type LostAttempt } from "../store/schema.ts";

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

/** Everything that a database has about its executions. */
export interface Snapshot {
  rows: (typeof executions.$inferSelect)[];
  /** Executions that have a dead letter, one entry per letter. */
  letters: string[];
  /** Its count of queued executions. */
  queued: number;
  /** Tenants whose counts are not those of the rows. */
  miscounted: unknown[];
  shown: Map<string, FullExecution>;
}

export async function snapshot(db: Database): Promise<Snapshot> {
  const rows = await db.orm.select().from(executions).orderBy(executions.seq);
  const letters = await db.orm.select({ id: deadLetters.executionId }).from(deadLetters);
  const { pending } = await readQueueStats(db);
  const { rows: wrong } = await db.client.execute(miscounted);
  const full = await withPayloads(db, rows);
  return {
    rows,
    letters: letters.map(({ id }) => id),
    queued: pending,
    miscounted: wrong,
    shown: new Map(full.map((one) => [one.execution.id, one])),
  };
}

/** What a start would find if only the first `bytes` of the write-ahead log had reached the disk. */
export async function afterPowerCut(
  dataFolder: string,
  bytes: number,
  garbage: boolean,
): Promise<Snapshot> {
  const folder = mkdtempSync(join(tmpdir(), "airlock-cut-"));
  try {
    copyFileSync(join(dataFolder, "airlock.db"), join(folder, "airlock.db"));
    if (existsSync(walOf(dataFolder))) {
      copyFileSync(walOf(dataFolder), walOf(folder));
      truncateSync(walOf(folder), Math.floor(Math.min(bytes, walBytes(dataFolder))));
      if (garbage) await appendFile(walOf(folder), Buffer.alloc(5000, 0xa5));
    }
    const client = createClient({ url: `file:${folder}/airlock.db` });
    const left = await snapshot(database(client));
    client.close();
    return left;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

export function walBytes(dataFolder: string): number {
  return existsSync(walOf(dataFolder)) ? statSync(walOf(dataFolder)).size : 0;
}

function walOf(dataFolder: string): string {
  return join(dataFolder, "airlock.db-wal");
}

/**
 * Finds tenants whose counts are not those of the rows, with both: the triggers keep none of them wrong. CPU time
 * outlives its records, so it is checked from below.
 */
export const miscounted = `
  WITH counted AS (
    SELECT t.name AS name, queued, running, stored_bytes AS bytes, (
        SELECT count(*) FROM executions e WHERE e.tenant = t.name AND status = 'queued' AND session_id IS NULL) AS waiting, (
        SELECT count(*) FROM executions e WHERE e.tenant = t.name AND status = 'running' AND session_id IS NULL) AS leased,
      coalesce((SELECT sum(submitted_bytes + output_bytes) FROM executions e WHERE e.tenant = t.name), 0)
      + coalesce((SELECT sum(a.size_bytes) FROM artifacts a JOIN executions e ON e.id = execution_id
          WHERE e.tenant = t.name), 0)
      + coalesce((SELECT sum(length(data)) FROM output_chunks JOIN executions e ON e.id = execution_id
          WHERE e.tenant = t.name), 0)
      + coalesce((SELECT sum(length(CAST(data AS BLOB)) + coalesce(length(CAST(answer AS BLOB)), 0)) FROM run_items JOIN executions e ON e.id = execution_id
          WHERE e.tenant = t.name), 0)
      + coalesce((SELECT sum(length(CAST(requirements AS BLOB)) + coalesce(length(CAST(metadata AS BLOB)), 0)
          + coalesce(length(CAST(env AS BLOB)), 0)) FROM sessions s WHERE s.tenant = t.name), 0)
      + coalesce((SELECT sum(size_bytes) FROM files f WHERE f.tenant = t.name), 0)
      + coalesce((SELECT sum(file_bytes + artifact_bytes) FROM removals r WHERE r.tenant = t.name), 0) AS stored,
      cpu_ms, coalesce((SELECT sum(cpu_time_ms) FROM executions e
        WHERE e.tenant = t.name AND ended_at / 86400000 = cpu_day), 0) AS spent
    FROM tenants t)
  SELECT name AS id, json_array(queued, waiting, running, leased, bytes, stored, cpu_ms, spent) AS what
  FROM counted WHERE queued <> waiting OR running <> leased OR bytes <> stored OR cpu_ms < spent
  UNION ALL
  SELECT e.id, 'bytes' FROM executions e JOIN payloads p ON p.execution_id = e.id
  WHERE submitted_bytes <> length(code) + length(input) + coalesce(length(stdin), 0)
      + coalesce(length(CAST(args AS BLOB)), 0) + coalesce(length(CAST(metadata AS BLOB)), 0)
      + iif(requirements = '[]', 0, length(CAST(requirements AS BLOB)))
      + coalesce(length(CAST(tools AS BLOB)), 0)
      + coalesce(length(CAST(json_remove(p.call, '$.env') AS BLOB)), 0)
      + coalesce((SELECT sum(length(content)) FROM input_files f WHERE f.execution_id = e.id), 0)
    OR output_bytes <> coalesce(length(stdout), 0) + coalesce(length(stderr), 0) + coalesce(length(output), 0)`;

/** What the store keeps of a run that wrote nothing. */
export const result: Result = {
  status: "succeeded",
  exit_code: 0,
  error: null,
  stdout: new Uint8Array(),
  stderr: new Uint8Array(),
  output: null,
  stdout_truncated: false,
  stderr_truncated: true,
  output_json: null,
  timing: {
    startup_ms: 1,
    dep_install_ms: 0,
    execution_ms: 2,
    total_ms: 3,
    phase_at_exit: "completed",
  },
  resource_usage: { max_rss_mb: 12.5, cpu_time_ms: 4, wall_time_ms: 5 },
  job_ref: "default@sha256:0",
  container_runtime: "runsc",
  hash: "hash",
};
