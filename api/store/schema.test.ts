import type { InValue } from "@libsql/client";
import { describe, expect, test } from "vitest";
import { type ExecutionStatus, executionStatuses } from "../../shared/wire/executions.ts";
import { findExecution } from "../jobs/sql.ts";
import { storeJob } from "../testing/temp-store.ts";
import { store, useOneStore } from "../testing/use-store.ts";

useOneStore();

type Columns = Record<string, InValue>;

/** Writes columns of an execution without the store's functions. */
async function write(id: string, columns: Columns): Promise<void> {
  const assignments = Object.keys(columns).map((name) => `${name} = ?`);
  await store.db.client.execute({
    sql: `UPDATE executions SET ${assignments.join(", ")} WHERE id = ?`,
    args: [...Object.values(columns), id],
  });
}

async function queued(mode: "sync" | "async" = "async"): Promise<string> {
  return storeJob(store.db, { mode });
}

const lease = { lease_id: "l", agent_id: "a", lease_expires_at: 9, started_at: 1 };
const running: Columns = { status: "running", attempt: 1, ...lease };
const error = '{"type":"unknown","message":"","phase":"execution"}';

/** Columns that a status requires. */
function valid(status: ExecutionStatus): Columns {
  switch (status) {
    case "queued":
      return { status };
    case "running":
      return { ...running, lease_id: crypto.randomUUID() };
    case "succeeded":
      return { status, ended_at: 2, exit_code: 0 };
    case "failed":
    case "timeout":
    case "oom":
    case "cancelled":
      return { status, ended_at: 2, error };
  }
}

describe("CHECK constraints", () => {
  const violations: [constraint: string, Columns][] = [
    ["status_known", { ...valid("failed"), status: "lost" }],
    ["mode_known", { mode: "later" }],
    ["lease_while_running", { ...running, lease_expires_at: null }],
    ["lease_while_running", lease],
    ["lease_while_running", { ...valid("failed"), ...lease }],
    ["lease_complete", { ...running, lease_id: null }],
    ["lease_complete", { ...running, agent_id: null }],
    ["lease_complete", { ...running, started_at: null }],
    ["ended_when_terminal", { ...valid("succeeded"), ended_at: null }],
    ["ended_when_terminal", { ...running, ended_at: 2 }],
    ["ended_when_terminal", { ended_at: 2 }],
    ["error_unless_succeeded", { ...valid("succeeded"), error }],
    ["error_unless_succeeded", { ...running, error }],
    ["error_unless_succeeded", { ...valid("failed"), error: null }],
    ["error_unless_succeeded", { ...valid("oom"), error: null }],
    ["no_exit_code_on_timeout", { ...valid("timeout"), exit_code: 0 }],
    ["attempt_not_negative", { attempt: -1 }],
    ["call_complete", { session_id: "s" }],
    ["call_complete", { session_id: "s", call: 1 }],
    ["call_complete", { context: "default" }],
    ["lineage_complete", { parent_execution_id: "x" }],
    ["lineage_complete", { relationship: "fork" }],
  ];

  test("each constraint has a violation in this table", async () => {
    const { rows } = await store.db.client.execute(
      "SELECT sql FROM sqlite_master WHERE name = 'executions'",
    );
    const table = rows[0]?.["sql"] as string;
    const names = [...table.matchAll(/CONSTRAINT "(\w+)" CHECK/g)].map(([, name]) => name);
    expect(new Set(violations.map(([name]) => name))).toEqual(new Set(names));
  });

  test.each(violations)("%s refuses %j", async (constraint, columns) => {
    const id = await queued();
    await expect(write(id, columns)).rejects.toThrow(constraint);
    expect(await findExecution(store.db, id)).toMatchObject({ status: "queued", attempt: 0 });
  });

  test.each(executionStatuses)("all accept %s with its columns", async (status) => {
    const id = await queued();
    await write(id, valid(status));
    expect(await findExecution(store.db, id)).toMatchObject({ status });
  });
});

async function letters(id: string): Promise<number> {
  const { rows } = await store.db.client.execute({
    sql: "SELECT count(*) FROM dead_letters WHERE execution_id = ?",
    args: [id],
  });
  return Number(rows[0]?.[0]);
}

describe("the dead letter trigger", () => {
  const dead = new Set<ExecutionStatus>(["failed", "timeout", "oom"]);
  const cases = (["sync", "async"] as const).flatMap((mode) =>
    (["queued", "running"] as const).flatMap((from) =>
      executionStatuses.map((to) => [mode, from, to] as const),
    ),
  );
  test.each(cases)("%s execution from %s to %s", async (mode, from, to) => {
    const id = await queued(mode);
    await write(id, valid(from));
    await write(id, { ...valid(to), lease_expires_at: to === "running" ? 9 : null });
    expect(await letters(id)).toBe(mode === "async" && dead.has(to) ? 1 : 0);
  });

  test("writes one letter, at the time of the end", async () => {
    const id = await queued();
    await write(id, { ...valid("failed"), ended_at: 77 });
    await write(id, { status: "failed", exit_code: 1 });
    const { rows } = await store.db.client.execute({
      sql: "SELECT created_at FROM dead_letters WHERE execution_id = ?",
      args: [id],
    });
    expect(rows.map((row) => row[0])).toEqual([77]);
  });
});

test("a finished execution never changes its status", async () => {
  const ended = executionStatuses.filter((status) => status !== "queued" && status !== "running");
  for (const from of ended) {
    const id = await queued();
    await write(id, valid(from));
    for (const to of executionStatuses.filter((status) => status !== from)) {
      await expect(
        write(id, { ended_at: null, exit_code: null, error: null, ...valid(to) }),
      ).rejects.toThrow("a finished execution cannot change its status");
    }
  }
});

describe("the audit log", () => {
  const day = 86_400_000;
  const entry = (at: number) =>
    store.db.client.execute({
      sql: `INSERT INTO audit (at, key_name, tenant, action, target, correlation_id)
        VALUES (?, 'shell', 'default', 'key.create', 'x', 'c')`,
      args: [at],
    });

  test("refuses each change, and removals within 30 days", async () => {
    const now = Date.now();
    await entry(now - 29 * day);
    await entry(now - 31 * day);
    const run = (sql: string) => store.db.client.execute(sql);
    await expect(run("UPDATE audit SET key_name = 'other'")).rejects.toThrow("cannot change");
    await expect(run("DELETE FROM audit")).rejects.toThrow("for 30 days");
    const old = { sql: "DELETE FROM audit WHERE at < ?", args: [now - 30 * day] };
    expect((await store.db.client.execute(old)).rowsAffected).toBe(1);
  });
});

test("a new database has the tenant default", async () => {
  const { rows } = await store.db.client.execute("SELECT name FROM tenants");
  expect(rows).toMatchObject([{ name: "default" }]);
});
