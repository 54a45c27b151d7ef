import { afterEach, beforeEach, expect, test } from "vitest";
import type { DurableClient } from "../../store/database.ts";
import { fileClient } from "./file-client.node.ts";
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

test("a read leaves no read open", async () => {
  await client.execute("INSERT INTO t VALUES (1), (2)");
  expect((await client.execute("SELECT n FROM t")).rows).toHaveLength(2);
  await other.execute("UPDATE t SET n = n + 2");
  const { rows } = await other.execute("PRAGMA wal_checkpoint(TRUNCATE)");
  expect(rows[0]?.["busy"]).toBe(0);
});
