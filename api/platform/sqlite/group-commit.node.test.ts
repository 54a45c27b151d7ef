import { join } from "node:path";
import type { InStatement } from "@libsql/client";
import { afterEach, beforeEach, expect, test } from "vitest";
import { groupCommit } from "./group-commit.node.ts";
import { openConnection, type Connection } from "./sqlite-connection.node.ts";
import { tempFolder } from "../../../shared/testing/temp-folder.ts";

let folder: string;
let connection: Connection;
let ran: InStatement[];
let source: Parameters<typeof groupCommit>[0];
let commit: ReturnType<typeof groupCommit>;

beforeEach(() => {
  folder = tempFolder();
  connection = openConnection(join(folder, "test.db"), 0);
  connection.run("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)");
  ran = [];
  const noted: Connection = {
    run(statement) {
      ran.push(statement);
      return connection.run(statement);
    },
    get inTransaction() {
      return connection.inTransaction;
    },
    close() {},
  };
  source = { connected: () => noted, disconnect() {}, lockTimeoutMs: 0 };
  commit = groupCommit(source);
});
afterEach(() => connection.close());

function insert(name: string | null): InStatement {
  return { sql: "INSERT INTO t (name) VALUES (?)", args: [name] };
}

function names(): unknown[] {
  return connection.run("SELECT name FROM t ORDER BY id").rows.map((row): unknown => row[0]);
}

test("writes of one tick share one commit, and are answered with their own results", async () => {
  // However slow the machine is.
  commit = groupCommit({ ...source, groupMs: Infinity });
  const answers = await Promise.all(["a", "b", "c"].map((name) => commit.add([insert(name)])));
  expect(answers.map(([result]) => result?.lastInsertRowid)).toEqual([1n, 2n, 3n]);
  expect(ran.filter((statement) => statement === "COMMIT")).toHaveLength(1);
  expect(names()).toEqual(["a", "b", "c"]);
});

test("a refused write is undone completely and fails alone", async () => {
  const results = await Promise.allSettled([
    commit.add([insert("a"), insert("b")]),
    commit.add([insert("c"), insert("a")]),
    commit.add([insert(null)]),
    commit.add([insert("d")]),
  ]);
  expect(results.map(({ status }) => status)).toEqual([
    "fulfilled",
    "rejected",
    "rejected",
    "fulfilled",
  ]);
  expect(results[1]).toMatchObject({ reason: { code: "SQLITE_CONSTRAINT" } });
  expect(names()).toEqual(["a", "b", "d"]);
});

test("a write alone takes no savepoint, and is undone completely if it is refused", async () => {
  const both = [insert("a"), insert("b")];
  await commit.add(both);
  expect(ran).toEqual(["BEGIN IMMEDIATE", ...both, "COMMIT"]);
  const refused = commit.add([insert("c"), insert("a")]);
  await expect(refused).rejects.toMatchObject({ code: "SQLITE_CONSTRAINT" });
  await commit.add([insert("d"), insert("e")]);
  expect(names()).toEqual(["a", "b", "d", "e"]);
});

test("a single statement alone is its own transaction, and may be refused", async () => {
  await commit.add([insert("a")]);
  expect(ran).toMatchObject([insert("a")]);
  await expect(commit.add([insert("a")])).rejects.toMatchObject({ code: "SQLITE_CONSTRAINT" });
  await commit.add([insert("b")]);
  expect(names()).toEqual(["a", "b"]);
});

test.each([
  ["a single statement", [insert("b")]],
  ["a transaction", [insert("b"), insert("c")]],
])("%s waits while another process has the lock", async (_, statements) => {
  const other = openConnection(join(folder, "test.db"), 0);
  const refused = Promise.withResolvers<void>();
  const run = connection.run.bind(connection);
  connection.run = (statement) => {
    try {
      return run(statement);
    } catch (error) {
      refused.resolve();
      throw error;
    }
  };
  try {
    other.run("BEGIN IMMEDIATE");
    const written = groupCommit({ ...source, lockTimeoutMs: Infinity }).add(statements);
    await refused.promise;
    other.run("ROLLBACK");
    await written;
    expect(names()).toEqual(
      statements.map((statement) => (statement as { args: unknown[] }).args[0]),
    );
  } finally {
    other.close();
  }
});

test("writes that take long are committed in several ticks", async () => {
  const slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 200000)";
  const long = { sql: `INSERT INTO t (name) ${slow} SELECT ? || max(i) FROM n`, args: [""] };
  const writes = ["a", "b", "c"].map((name) => commit.add([{ ...long, args: [name] }]));
  await writes[0];
  expect(names()).toEqual(["a200000"]);
  await Promise.all(writes);
  expect(names()).toHaveLength(3);
});

/** SQLite refuses a child without a parent when it commits. */
function makeChildren(): void {
  connection.run("PRAGMA foreign_keys = ON");
  connection.run(
    "CREATE TABLE child (parent INTEGER REFERENCES t(id) DEFERRABLE INITIALLY DEFERRED)",
  );
}

test("a write is not answered before its commit: if that fails, all of its writes are refused", async () => {
  makeChildren();
  const results = await Promise.allSettled([
    commit.add([insert("a")]),
    commit.add([{ sql: "INSERT INTO child VALUES (99)", args: [] }]),
  ]);
  expect(results.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
});

test("a single statement is refused if its own commit fails, even if it returns a row", async () => {
  makeChildren();
  const returning = "INSERT INTO child VALUES (99) RETURNING 1";
  await expect(commit.add([returning])).rejects.toMatchObject({ code: "SQLITE_CONSTRAINT" });
});

test("only a commit that changed something is to be brought to the disk", async () => {
  let commits = 0;
  commit = groupCommit({ ...source, committed: () => (commits += 1) });
  const again = { sql: "INSERT OR IGNORE INTO t (name) VALUES (?)", args: ["a"] };
  await commit.add([again]);
  expect(commits).toBe(1);
  await commit.add([again, "SELECT name FROM t"]);
  expect(commits).toBe(1);
  const rename = { sql: "UPDATE t SET name = 'b' WHERE name = ? RETURNING id", args: ["a"] };
  await commit.add([rename]);
  expect(commits).toBe(2);
  await commit.add([rename]);
  expect(commits).toBe(2);
});
