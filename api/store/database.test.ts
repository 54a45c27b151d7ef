import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { setImmediate as nextTick } from "node:timers/promises";
import { createClient } from "@libsql/client";
import { is } from "drizzle-orm";
import { getTableConfig, SQLiteTable } from "drizzle-orm/sqlite-core";
import { describe, expect, test } from "vitest";
import { findExecution } from "../jobs/sql.ts";
import { submitExecution } from "../jobs/submit.ts";
import { postByFetch, serverClient } from "../platform/libsql-server.ts";
import { postByUndici } from "../platform/sqlite.node.ts";
import { newExecution, openIn, openTempStore, storeJob } from "../testing/temp-store.ts";
import { store, useOneStore } from "../testing/use-store.ts";
import { isStoreOutage } from "./database.ts";
import * as schema from "./schema.ts";

describe("database", () => {
  useOneStore();

  async function rows(sql: string): Promise<unknown[][]> {
    const result = await store.db.client.execute(sql);
    return result.rows.map((row) => Array.from(row));
  }

  describe("migrations", () => {
    test("make the tables, columns and indexes of the schema", async () => {
      const made =
        await rows(`SELECT t.name, c.name, lower(c.type), c."notnull" FROM sqlite_master t,
      pragma_table_info(t.name) c WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'
      AND t.name NOT LIKE '\\_\\_%' ESCAPE '\\'`);
      const tables = Object.values(schema).flatMap((one) =>
        is(one, SQLiteTable) ? [getTableConfig(one)] : [],
      );
      const columns = tables.flatMap(({ name, columns }) =>
        columns.map((c) => String([name, c.name, c.getSQLType(), c.notNull ? 1 : 0])),
      );
      expect(new Set(made.map(String))).toEqual(new Set(columns));
      const indexes = tables.flatMap(({ indexes, columns }) => [
        ...indexes.map(({ config }) => config.name),
        ...columns.flatMap(({ isUnique, uniqueName }) => (isUnique ? [uniqueName] : [])),
      ]);
      const found = await rows("SELECT name FROM sqlite_master WHERE type = 'index' AND sql > ''");
      expect(new Set(found.flat())).toEqual(new Set(indexes));
    });

    test("run once: opening the file again changes nothing and keeps its data", async () => {
      const id = await storeJob(store.db);
      const before = await rows("SELECT * FROM __drizzle_migrations");
      (await openIn(store.folder)).close();
      expect(await rows("SELECT * FROM __drizzle_migrations")).toEqual(before);
      expect(await findExecution(store.db, id)).toMatchObject({ status: "queued" });
    });

    test.each([
      [
        "a newer version",
        "INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('of 2031', 1e15)",
      ],
      ["an unknown build", "UPDATE __drizzle_migrations SET hash = 'of a branch', created_at = 1"],
    ])("a database of %s is refused and keeps everything", async (_, change) => {
      const other = await openTempStore();
      const { client } = other.db;
      await submitExecution(other.db, newExecution(), 10);
      await client.batch(["DROP TABLE agents", change]);
      const all = async () => {
        const tables = ["sqlite_master", "__drizzle_migrations", "executions"];
        const found = await client.batch(tables.map((name) => `SELECT * FROM ${name}`));
        return found.map((result) => result.rows.map((row) => Array.from(row)));
      };
      const before = await all();
      await expect(openIn(other.folder)).rejects.toThrow(
        `cannot open the database file:${other.folder}/airlock.db: another version of Airlock made it. ` +
          "Use that version (it can also back it up), or begin anew with an empty database (AIRLOCK_DATA_DIR or AIRLOCK_DATABASE_URL)",
      );
      expect(await all()).toEqual(before);
      other.close();
    });
  });

  describe("the connection that the store uses", () => {
    test.each([
      ["journal_mode", "wal"],
      ["synchronous", 1],
      ["foreign_keys", 1],
      ["busy_timeout", 10],
    ])(
      "has %s = %s, also after a batch, a refused statement and many at once",
      async (name, value) => {
        const { client } = store.db;
        await client.batch(["SELECT 1", "SELECT 2"], "write");
        await expect(client.execute("INSERT INTO payloads DEFAULT VALUES")).rejects.toThrow(
          "NOT NULL",
        );
        const answers = await Promise.all(
          Array.from({ length: 30 }, () => client.execute(`PRAGMA ${name}`)),
        );
        expect(new Set(answers.map(({ rows: [row] }) => row?.[0]))).toEqual(new Set([value]));
      },
    );

    test("refuses a row that refers to nothing", async () => {
      await expect(
        store.db.client.execute(
          "INSERT INTO dead_letters (execution_id, error_type, created_at) VALUES ('x', '', 1)",
        ),
      ).rejects.toThrow("FOREIGN KEY");
    });

    test("waits for another process's lock and answers reads meanwhile, then refuses, then works again", async () => {
      const { client } = store.db;
      const other = createClient({ url: `file:${store.folder}/airlock.db` });
      const lock = await other.transaction("write");
      const refused = Promise.allSettled([
        submitExecution(store.db, newExecution(), 100),
        client.execute("DELETE FROM agents WHERE id = 'x'"),
      ]);
      expect(await rows("SELECT 1")).toEqual([[1]]);
      for (const result of await refused) {
        expect(result).toMatchObject({ status: "rejected", reason: { code: "SQLITE_BUSY" } });
      }

      const late = submitExecution(store.db, newExecution(), 100);
      expect(await rows("SELECT 1")).toEqual([[1]]);
      await lock.rollback();
      expect(await late).toMatchObject({ kind: "accepted" });
      const settings = await Promise.all(
        ["synchronous", "foreign_keys", "busy_timeout"].map((name) => rows(`PRAGMA ${name}`)),
      );
      expect(settings.flat(2)).toEqual([1, 1, 10]);
      other.close();
    });

    test("works again after the disk was full, and has nothing of the refused writes", async () => {
      const { client } = store.db;
      const pages = (await client.execute("PRAGMA page_count")).rows[0]?.[0] as number;
      await client.execute(`PRAGMA max_page_count = ${pages}`);
      const large = newExecution({ code: new Uint8Array(1024 * 1024) });
      const refused = await submitExecution(store.db, large, 100).catch((error: unknown) => error);
      expect(isStoreOutage(refused)).toBe(true);
      expect(await findExecution(store.db, large.id)).toBeUndefined();
      expect(await submitExecution(store.db, large, 100)).toMatchObject({ kind: "accepted" });
    });

    test("lets other processes read the file while it is open", async () => {
      const reader = createClient({ url: `file:${store.folder}/airlock.db` });
      const { rows: found } = await reader.execute("SELECT count(*) FROM executions");
      reader.close();
      expect(found).toHaveLength(1);
    });
  });
});

test.each([postByUndici, postByFetch])(
  "a database server that never answers is an outage after the timeout (%o)",
  async (postBy) => {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    const client = serverClient({ url: `http://127.0.0.1:${port}`, post: postBy(50), nextTick });
    const outcomes = await Promise.allSettled([
      client.execute("SELECT 1"),
      client.batch(["INSERT 1", "INSERT 2"], "write"),
    ]);
    server.close();
    for (const outcome of outcomes) {
      expect(outcome.status === "rejected" && isStoreOutage(outcome.reason)).toBe(true);
    }
  },
);
