import { copyFileSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setImmediate as nextTick } from "node:timers/promises";
import type { InStatement, InValue, ResultSet } from "@libsql/client";
import * as fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { openFilesIn } from "../../shared/testing/files.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { submitExecution } from "../jobs/submit.ts";
import { type DurableClient, fileSettings, isStoreOutage, keptTables } from "../store/database.ts";
import { registry, type Statement } from "../store/statement.ts";
import { created, newCall } from "../testing/session-store.ts";
import { leasedJob, newExecution, openTempStore } from "../testing/temp-store.ts";
import {
  type Connection,
  fileClient,
  groupCommit,
  openConnection,
  walFile,
  walSync,
} from "./sqlite.node.ts";

describe("file client", () => {
  let folder: string;
  let client: DurableClient;
  let other: DurableClient;
  beforeEach(async () => {
    folder = tempFolder();
    [client, other] = [0, 1].map(() => fileClient(`file:${folder}/a.db`)) as [
      DurableClient,
      DurableClient,
    ];
    await client.execute("CREATE TABLE t (n INTEGER)");
  });
  afterEach(() => {
    client.close();
    other.close();
  });

  test.each([
    ["WITH x AS (SELECT 1 AS n) SELECT n FROM x", 1],
    [
      "  with recursive x(n) as (select 1 union all select n + 1 from x where n < 3) select max(n) from x",
      3,
    ],
  ])("%s is a read: it does not wait for a commit", async (sql, expected) => {
    let isCommitted = false;
    const write = client.execute("INSERT INTO t VALUES (1)").then(() => (isCommitted = true));
    const { rows } = await client.execute(sql);
    expect(Number(rows[0]?.[0])).toBe(expected);
    expect(isCommitted).toBe(false);
    await write;
  });

  test.each([
    "WITH x AS (SELECT 7 AS n) INSERT INTO t SELECT n FROM x",
    "with x as (select 7 as n) insert into t select n from x returning n",
  ])("%s is a write: it shares a commit", async (sql) => {
    await client.execute(sql);
    expect((await other.execute("SELECT count(*) FROM t")).rows[0]?.[0]).toBe(1);
  });

  const long =
    "INSERT INTO t SELECT value FROM (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 50000) SELECT value FROM n)";

  describe("a write of long statements", () => {
    const countRows = async (of: DurableClient): Promise<unknown> =>
      (await of.execute("SELECT count(*) FROM t")).rows[0]![0];

    /** What readers of this client are told, one after the other, until the write has ended. */
    async function readWhile(write: Promise<unknown>): Promise<unknown[]> {
      const seen: unknown[] = [];
      const over = write.then(
        () => true,
        () => true,
      );
      while (!(await Promise.race([over, nextTick()]))) seen.push(await countRows(client));
      return seen;
    }

    test("lets others read between them, who see all of it or nothing", async () => {
      const write = client.batch([long, long, long, long], "write");
      const seen = await readWhile(write);
      expect(seen.filter((count) => count === 0).length).toBeGreaterThanOrEqual(4);
      expect(seen.filter((count) => count !== 0 && count !== 200_000)).toEqual([]);
      expect(await countRows(client)).toBe(200_000);
    });

    test.each(["alone", "with others"])(
      "%s: is undone whole when a later one is refused",
      async (company) => {
        const write = client.batch([long, long, "INSERT INTO nowhere VALUES (1)"], "write");
        const others =
          company === "alone"
            ? []
            : [1, 2].map((n) => client.batch([`INSERT INTO t VALUES (${n})`, "SELECT 1"], "write"));
        const seen = await readWhile(write);
        await expect(write).rejects.toThrow("no such table: nowhere");
        await Promise.all(others);
        expect(seen.every((count) => Number(count) <= 2)).toBe(true);
        expect(await countRows(client)).toBe(others.length);
      },
    );

    test("gives its turn to no other write: those that come meanwhile are committed after it", async () => {
      const write = client.batch([long, long, long], "write");
      const order: string[] = [];
      const first = write.then(() => order.push("long"));
      await nextTick();
      await nextTick();
      const second = client
        .execute("DELETE FROM t")
        .then(({ rowsAffected }) => order.push(String(rowsAffected)));
      await Promise.all([first, second]);
      expect(order).toEqual(["long", "150000"]);
    });

    test("fails as an outage when the client is closed within it, and leaves nothing", async () => {
      const write = client.batch([long, long, long], "write").catch((error: unknown) => error);
      await expect.poll(() => countRows(client)).toBe(0);
      await nextTick();
      client.close();
      expect(isStoreOutage(await write)).toBe(true);
      expect(await countRows(other)).toBe(0);
    });
  });

  test("a statement that reads ends its read transaction", async () => {
    await client.execute("INSERT INTO t VALUES (1), (2)");
    expect((await client.execute("SELECT n FROM t")).rows).toHaveLength(2);
    await other.execute("UPDATE t SET n = n + 2");
    const { rows } = await other.execute("PRAGMA wal_checkpoint(TRUNCATE)");
    expect(rows[0]?.["busy"]).toBe(0);
  });

  /** What a request asks for, and what it is told. */
  interface Call {
    statements: InStatement[];
    answer: Promise<{ results: ResultSet[]; error?: never } | { error: Error }>;
  }

  /** What a statement gave when it ran last, and its place in the order of all. */
  interface Run {
    at: number;
    result?: ResultSet;
    error?: unknown;
  }

  const orphan = "INSERT INTO child VALUES (NULL, 99) RETURNING id";
  const orphanError = "SQLITE_CONSTRAINT: FOREIGN KEY constraint failed";

  describe("every statement of the API, alone or with others, gives what a fresh connection gives", () => {
    // A seed that failed is worth a row of its own.
    test.each([1, Date.now()])("in the order of seed %i", async (seed) => {
      const start = `${folder}/start.db`;
      const values = await makeStart(start);
      const [real, alone] = [`${folder}/real.db`, `${folder}/alone.db`] as const;
      for (const copy of [real, alone]) copyFileSync(start, copy);
      const { calls, runs } = await interleave(real, randomOf(seed), values);
      const seen = await repeatAlone(alone, calls, runs);
      expect(contentOf(real)).toEqual(contentOf(alone));
      // Otherwise the row would show little.
      for (const count of [seen.withRows, seen.changed, seen.refused, seen.lostInCommit]) {
        expect(count).toBeGreaterThan(5);
      }
    });
  });

  /** Sends each statement of the API a few times in a row, alone and with others, at random moments. */
  async function interleave(path: string, random: Random, values: Value[]) {
    const runs = new Map<InStatement, Run>();
    let at = 0;
    const noting: typeof openConnection = (...opened) => {
      const connection = openConnection(...opened);
      const run = (statement: InStatement): ResultSet => {
        const noted: Run = { at: at++ };
        runs.set(statement, noted);
        try {
          return (noted.result = connection.run(statement));
        } catch (error) {
          noted.error = error;
          throw error;
        }
      };
      return Object.setPrototypeOf({ run }, connection) as Connection;
    };
    const clients = [0, 1].map(() => fileClient(`file:${path}`, noting));
    const other = noting(path, 0);
    const calls: Call[] = [];
    const send = async (statements: InStatement[]): Promise<void> => {
      const asked = clients[random(20) === 0 ? 1 : 0]!;
      const answer =
        statements.length === 1
          ? asked.execute(statements[0]!).then((result) => [result])
          : asked.batch(statements, "write");
      calls.push({ statements, answer: settled(answer) });
      await calls.at(-1)!.answer;
    };

    const left = [...registry];
    while (left.length > 0) {
      const [next] = left.splice(random(left.length), 1);
      for (let times = 2 + random(3); times > 0; times--) {
        const company = random(3) === 0 ? [registry[random(registry.length)]!] : [];
        const statements: InStatement[] = [next!, ...company].map((each) =>
          each(valuesOf(each, random, values)),
        );
        // Such a statement follows another one in its transaction.
        if (statements.some((each) => textOf(each).includes("changes()"))) {
          statements.unshift({ sql: "UPDATE counts SET n = n WHERE ?", args: [random(2)] });
        }
        if (random(40) === 0) statements.push({ sql: orphan, args: [] });
        const sent = send(statements);
        if (random(2) === 0) await sent;
        else if (random(4) === 0) await nextTick();
      }
      if (random(40) === 0) {
        // As another process that has the lock for a while.
        other.run("BEGIN IMMEDIATE");
        const statement = { sql: "UPDATE counts SET n = n + 1", args: [] };
        const result = other.run(statement);
        await nextTick();
        other.run("COMMIT");
        calls.push({ statements: [statement], answer: settled(Promise.resolve([result])) });
      }
    }
    await Promise.all(calls.map(({ answer }) => answer));
    for (const client of clients) client.close();
    other.close();
    return { calls, runs };
  }

  function settled(promise: Promise<ResultSet[]>): Call["answer"] {
    return promise.then(
      (results) => ({ results }),
      (error: Error) => ({ error }),
    );
  }

  /** Makes each call again in the order in which they ran, each on a connection of its own. */
  async function repeatAlone(path: string, calls: Call[], runs: Map<InStatement, Run>) {
    // The last connection that closes would copy the log into the database, each time.
    const held = openConnection(path, 0);
    const seen = { withRows: 0, changed: 0, refused: 0, lostInCommit: 0 };
    const atOf = ({ statements }: Call) => runs.get(statements[0]!)?.at ?? -1;
    for (const { statements, answer } of calls.toSorted((a, b) => atOf(a) - atOf(b))) {
      const told = await answer;
      const ran = statements.map((statement) => runs.get(statement));
      // Another call of its transaction kept it from being committed.
      if (told.error?.message === orphanError && !ran.some((run) => run?.error === told.error)) {
        seen.lostInCommit++;
        continue;
      }
      const results = told.error ? [] : told.results;
      if (told.error) seen.refused++;
      seen.withRows += results.filter(({ rows }) => rows.length > 0).length;
      seen.changed += results.filter(({ rowsAffected }) => rowsAffected > 0).length;
      expect(results.every((result, n) => result === ran[n]!.result)).toBe(true);
      const shownOf = { results: results.map(shown), error: told.error?.message };
      expect({ statements, ...shownOf }).toEqual({ statements, ...runAlone(path, statements) });
    }
    held.close();
    return seen;
  }

  function runAlone(path: string, statements: InStatement[]) {
    const connection = openConnection(path, 0);
    try {
      for (const setting of fileSettings) connection.run(setting);
      connection.run("BEGIN IMMEDIATE");
      const results = statements.map((statement) => shown(connection.run(statement)));
      connection.run("COMMIT");
      return { results, error: undefined };
    } catch (error) {
      return { results: [], error: (error as Error).message };
    } finally {
      connection.close();
    }
  }

  const textOf = (statement: InStatement) =>
    typeof statement === "string" ? statement : statement.sql;

  function shown({ columns, columnTypes, rows, rowsAffected }: ResultSet) {
    return {
      columns,
      columnTypes,
      rowsAffected,
      rows: rows.map((row) => Array.from(row as unknown as ArrayLike<unknown>, plain)),
    };
  }

  const plain = (value: unknown) =>
    value instanceof ArrayBuffer ? Buffer.from(value).toString("hex") : value;

  function contentOf(path: string) {
    const connection = openConnection(path, 0);
    const read = (sql: string) => shown(connection.run(sql));
    const { rows } = read("SELECT name FROM sqlite_master WHERE type = 'table'");
    const content = rows.map(
      ([name]) => [name, read(`SELECT * FROM "${name as string}"`)] as const,
    );
    connection.close();
    return Object.fromEntries(content) as Record<string, ReturnType<typeof shown>>;
  }

  /** What a row has in a column, by the name of a placeholder for it. */
  interface Value {
    name: string;
    table: string;
    tenant: unknown;
    value: InValue;
  }

  /** Records of two tenants, and a table whose rows are refused only by the COMMIT. */
  async function makeStart(path: string): Promise<Value[]> {
    // It loads every statement.
    await import("../app.ts");
    const made = await openTempStore();
    const { db } = made;
    await leasedJob(db);
    for (const tenant of ["a", "b", "a", "b"]) {
      const metadata = { of: tenant };
      await submitExecution(db, newExecution({ tenant, metadata }), 1000);
      await newCall(db, (await created(db, { tenant, metadata })).id, { tenant });
    }
    await db.client.execute(
      "CREATE TABLE child (id INTEGER PRIMARY KEY, parent REFERENCES child DEFERRABLE INITIALLY DEFERRED)",
    );
    await db.client.execute("PRAGMA wal_checkpoint(TRUNCATE)");
    copyFileSync(`${made.folder}/airlock.db`, path);
    made.close();
    return Object.entries(contentOf(path)).flatMap(([table, { columns, rows }]) =>
      rows.flatMap((row) =>
        columns.map((column, n) => ({
          name: column.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase()),
          table,
          tenant: row[columns.indexOf("tenant")],
          value: row[n] as InValue,
        })),
      ),
    );
  }

  const anything: InValue[] = [0, 1, 9, 1e15, "x", "[]", "{}", null, new Uint8Array([0x61])];

  /** Mostly of records of one tenant in the statement's tables. */
  function valuesOf({ names, text }: Statement, random: Random, values: Value[]) {
    const pick = (from: InValue[]) => from[random(from.length)]!;
    const tenant = pick(["a", "b"]);
    const fitting = values.filter(
      (each) =>
        text.includes(`"${each.table}"`) && (each.tenant === undefined || each.tenant === tenant),
    );
    const known = (name: string) =>
      fitting.flatMap((each) => (each.name === name ? [each.value] : []));
    const valueOf = (name: string): InValue => {
      if (name === "tenant") return tenant;
      const own = known(name.replace(/^read\./, ""));
      if (own.length > 0 && random(8) > 0) return pick(own);
      if (name.endsWith("s") && random(4) > 0) return JSON.stringify(known("id").slice(random(3)));
      return pick(anything);
    };
    return Object.fromEntries(names.map((name) => [name, valueOf(name)]));
  }

  type Random = (below: number) => number;

  /** Numbers from 0 below a limit (mulberry32). */
  function randomOf(seed: number): Random {
    let state = seed >>> 0;
    return (below) => {
      state = (state + 0x6d2b79f5) >>> 0;
      let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
      mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
      return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
    };
  }
});

describe("kept reads", () => {
  let clients: DurableClient[];
  let decoded: number;
  beforeEach(async () => {
    decoded = 0;
    const url = `file:${tempFolder()}/a.db`;
    clients = [0, 1].map(() => fileClient(url));
    for (const table of ["agents", "builds", "t"])
      await clients[0]!.execute(`CREATE TABLE ${table} (id INTEGER UNIQUE NOT NULL)`);
  });
  afterEach(() => clients.forEach((client) => client.close()));

  const read = async (client: DurableClient, tables: string[]): Promise<string> => {
    const joined = tables.map((table) => `SELECT '${table}', id FROM ${table}`).join(" UNION ALL ");
    const statement = { sql: joined, args: [] };
    const decode = ({ rows }: ResultSet): string => {
      decoded += 1;
      return inOrder(rows);
    };
    return client.kept({ statement, tables, decode });
  };

  test.each([
    [0, "nothing", () => Promise.resolve()],
    [0, "a write to another table", () => clients[0]!.execute("INSERT INTO builds VALUES (1)")],
    [1, "an insert", () => clients[0]!.execute('insert or ignore into "agents" values (1)')],
    [1, "an update", () => clients[0]!.execute("UPDATE agents SET id = 1")],
    [1, "a delete", () => clients[0]!.execute("DELETE FROM `agents`")],
    [1, "a group", () => clients[0]!.batch(["INSERT INTO t VALUES (1)", "DELETE FROM agents"])],
    [1, "a write of another process", () => clients[1]!.execute("INSERT INTO t VALUES (1)")],
  ])("a kept read is run %i times again after %s", async (times, _what, write) => {
    await read(clients[0]!, ["agents"]);
    decoded = 0;
    await write();
    await read(clients[0]!, ["agents"]);
    await read(clients[0]!, ["agents"]);
    expect(decoded).toBe(times);
  });

  test("whatever is written by two processes, alone or in groups, refused or not, a kept read returns what is there", async () => {
    const table = fc.constantFrom("agents", "builds", "t");
    const statement = fc.oneof(
      fc.tuple(table, fc.nat(4)).map(([name, id]) => `INSERT INTO ${name} VALUES (${id})`),
      fc.tuple(table, fc.nat(4)).map(([name, id]) => `DELETE FROM ${name} WHERE id = ${id}`),
      table.map((name) => `UPDATE ${name} SET id = id + 10 WHERE id < 2`),
    );
    const step = fc.record({
      by: fc.nat(1),
      writes: fc.array(fc.array(statement, { minLength: 1, maxLength: 3 }), { maxLength: 3 }),
    });
    const steps = fc.array(step, { minLength: 1, maxLength: 12 });
    await fc.assert(
      fc.asyncProperty(steps, async (all) => {
        for (const { by: writer, writes } of all) {
          const done = writes.map((each) => clients[writer]!.batch(each).catch(() => {}));
          // A read that begins before the commit, and may be kept.
          for (const client of clients) await read(client, ["agents", "builds"]);
          await Promise.all(done);
          for (const client of clients)
            for (const tables of [["agents"], ["builds"], ["agents", "builds"]])
              expect(await read(client, tables)).toBe(await plain(tables));
        }
      }),
      { numRuns: 60 },
    );
  });

  async function plain(tables: string[]): Promise<string> {
    const found: ResultSet["rows"] = [];
    for (const table of tables) {
      const { rows } = await clients[1]!.execute(`SELECT '${table}', id FROM ${table}`);
      found.push(...rows);
    }
    return inOrder(found);
  }

  const inOrder = (rows: ResultSet["rows"]): string =>
    rows
      .map((row) => JSON.stringify(Array.from(row)))
      .sort((a, b) => (a < b ? -1 : 1))
      .join(" ");

  test("no trigger and no foreign key changes a table whose reads are kept", async () => {
    const store = await openTempStore();
    const { rows } = await store.db.client.execute(
      "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'",
    );
    expect(rows.length).toBeGreaterThan(10);
    for (const table of keptTables) {
      const changing = new RegExp(`\\b(into|update|from)\\s+\\W?${table}\\b`, "i");
      const bodies = rows.map((row) => (row["sql"] as string).replace(/^.*?\bBEGIN\b/is, ""));
      expect(bodies.filter((body) => changing.test(body))).toEqual([]);
      const keys = await store.db.client.execute(
        `SELECT * FROM pragma_foreign_key_list('${table}')`,
      );
      expect(keys.rows).toEqual([]);
    }
    store.close();
  });
});

describe("group commit", () => {
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
      kept: (read) => connection.kept(read),
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
});

/** A disk whose syncs end when the test says so. */
function slowDisk() {
  const syncs: PromiseWithResolvers<void>[] = [];
  const sync = () => {
    const begun = Promise.withResolvers<void>();
    syncs.push(begun);
    return begun.promise;
  };
  return { syncs, log: walSync(sync) };
}

test("without writes there is no sync", async () => {
  const { syncs, log } = slowDisk();
  await log.synced();
  expect(syncs).toHaveLength(0);
});

test("commits during a sync are in the next sync, which all waiters share", async () => {
  const { syncs, log } = slowDisk();
  const ended: string[] = [];
  log.wrote();
  const first = log.synced().then(() => ended.push("first"));
  log.wrote();
  const later = ["second", "third"].map((name) => log.synced().then(() => ended.push(name)));
  expect(syncs).toHaveLength(1);

  syncs[0]?.resolve();
  await first;
  expect(ended).toEqual(["first"]);
  syncs[1]?.resolve();
  await Promise.all(later);
  expect(syncs).toHaveLength(2);
});

test("a failed sync rejects all its waiters, and the next waiter gets a new sync", async () => {
  const { syncs, log } = slowDisk();
  log.wrote();
  const waiting = Promise.allSettled([log.synced(), log.synced()]);
  syncs[0]?.reject(new Error("EIO"));
  expect((await waiting).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  const again = log.synced();
  syncs[1]?.resolve();
  await again;
});

test("a commit that nobody waits for is synced as well", async () => {
  const synced = Promise.withResolvers<void>();
  walSync(async () => synced.resolve()).wrote();
  await expect(synced.promise).resolves.toBeUndefined();
});

test("a file that cannot be synced is an outage of the store; a missing file counts as on disk", async () => {
  const folder = tempFolder();
  // The kernel refuses to sync a file that is not on a disk.
  symlinkSync("/proc/self/stat", join(folder, "refused-wal"));
  await expect(walFile(join(folder, "refused")).sync()).rejects.toSatisfy(isStoreOutage);
  await walFile(join(folder, "gone")).sync();
});

test("a log that is replaced while it opens is closed; the next sync is of its replacement", async () => {
  const folder = tempFolder();
  const path = join(folder, "airlock.db-wal");
  writeFileSync(path, "");
  const file = walFile(join(folder, "airlock.db"));
  const first = file.sync();
  file.forget();
  await first;
  renameSync(path, join(folder, "before"));
  writeFileSync(path, "");
  await file.sync();
  await expect.poll(() => openFilesIn(folder), { timeout: 30_000 }).toEqual([path]);
  file.forget();
});

const slow =
  "SELECT count(*) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) SELECT i FROM n)";

test("reads that arrive together let others run in between, and are answered in order", async () => {
  const client = fileClient("file::memory:");
  await client.execute(slow);
  const answered: number[] = [];
  let ticks = 0;
  let isDone = false;
  const tick = (): void => {
    ticks += 1;
    if (!isDone) setImmediate(tick);
  };
  setImmediate(tick);
  await Promise.all(
    Array.from({ length: 50 }, async (_, n) => {
      const { rows } = await client.execute(slow);
      expect(rows[0]?.[0]).toBe(200_000);
      answered.push(n);
    }),
  );
  isDone = true;
  expect(answered).toEqual(Array.from({ length: 50 }, (_, n) => n));
  expect(ticks).toBeGreaterThan(10);
  client.close();
});

test("a reader of many pieces waits behind the others for each piece", async () => {
  const client = fileClient("file::memory:");
  await client.execute(slow);
  const order: string[] = [];
  const pieces = 3;
  await Promise.all(
    ["a", "b", "c"].map(async (reader) => {
      for (let n = 0; n < pieces; n++) {
        await client.execute(slow);
        order.push(reader);
      }
    }),
  );
  const rounds = Array.from({ length: pieces }, (_, n) => order.slice(3 * n, 3 * n + 3));
  for (const round of rounds) expect(round.toSorted()).toEqual(["a", "b", "c"]);
  client.close();
});
