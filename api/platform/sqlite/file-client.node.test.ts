import { copyFileSync } from "node:fs";
import { setImmediate as nextTick } from "node:timers/promises";
import type { InStatement, InValue, ResultSet } from "@libsql/client";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { created, newCall } from "../../testing/session-store.ts";
import { leasedJob, newExecution, openTempStore } from "../../testing/temp-store.ts";
import { fileSettings, type DurableClient } from "../../store/database.ts";
import { submitExecution } from "../../store/jobs/submit.ts";
import { registry, type Statement } from "../../store/statement.ts";
import { fileClient } from "./file-client.node.ts";
import { openConnection, type Connection } from "./sqlite-connection.node.ts";
import { tempFolder } from "../../../shared/testing/temp-folder.ts";

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
  const content = rows.map(([name]) => [name, read(`SELECT * FROM "${name as string}"`)] as const);
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
  await import("../../app.ts");
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
