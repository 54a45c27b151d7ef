import { eq, sql } from "drizzle-orm";
import { beforeEach, describe, expect, test } from "vitest";
import { claimNext } from "../agents/claim.ts";
import { expectFile, recordFile } from "../files/sql.ts";
import { readStandings, submitBatch } from "../jobs/batch-sql.ts";
import { findExecution, queuePosition } from "../jobs/sql.ts";
import { submitExecution } from "../jobs/submit.ts";
import { created, newCall } from "../testing/session-store.ts";
import { handleOf, newExecution, offers } from "../testing/temp-store.ts";
import { store, useOneStore, useStore } from "../testing/use-store.ts";
import * as schema from "./schema.ts";
import { executions } from "./schema.ts";
import {
  given,
  keptRowsQuery,
  listed,
  query,
  registry,
  rowsQuery,
  statement,
  type Values,
} from "./statement.ts";
import { perTenant } from "./tenant.ts";

describe("tenant", () => {
  const { executions, payloads } = schema;

  describe("a statement of clients loads only if each mention of a tenant's table has its condition", () => {
    type Make = Parameters<typeof perTenant>[0];
    const faults: Record<string, Make> = {
      "a select": () => sql`select id from ${executions}`,
      "a join": (own) =>
        sql`select 1 from ${executions} join ${payloads} on true where ${own(executions)}`,
      "a second mention": (own) =>
        sql`select 1 from ${executions} where ${own(executions)} and exists (select 1 from ${executions} where id = 1)`,
      "an alias": (own) => sql`select 1 from ${executions} as o where ${own(executions)}`,
      "an update": () => sql`update ${executions} set id = 1`,
      "a delete": () => sql`delete from ${payloads}`,
      "a list of tables": (own) =>
        sql`select 1 from ${payloads}, ${executions} where ${own(payloads)}`,
      "an insert": () => sql`insert into ${executions} (id) values (1)`,
      keys: () => sql`select 1 from ${schema.apiKeys}`,
      "agents' tokens": (own) =>
        sql`select 1 from ${executions}, agent_tokens where ${own(executions)}`,
    };
    test.each(Object.entries(faults))("%s", (_, make) => {
      const { length } = registry;
      expect(() => perTenant(make)).toThrow(/needs own\(\)|has no tenant|clients never read/);
      expect(registry).toHaveLength(length);
    });
  });

  describe("another tenant's values", () => {
    useStore();

    /** Values of tenant a's records, for each name of a placeholder. */
    let theirs: Values;
    beforeEach(async () => {
      const { db } = store;
      const stored = async (tenant: string) => {
        const execution = newExecution({ tenant, idempotencyKey: "key", metadata: { a: "b" } });
        const files = [
          {
            name: "f",
            sizeBytes: 1,
            sha256: "h",
            contentType: "t",
            content: null,
            storeKey: "s",
            owner: "file",
          },
        ];
        await submitExecution(db, { ...execution, inputs: "mount", files }, 1000);
        return execution.id;
      };
      const id = await stored("a");
      const [leased] = await claimNext(
        db,
        { agentId: "agent", expiresAt: 9e15, now: 1000 },
        { slots: 9, gpus: 0, inputs: "mount" },
        offers,
      );
      const queued = await stored("a");
      const ids = [id, queued];
      await submitBatch(
        db,
        {
          id: "batch",
          tenant: "a",
          keyId: null,
          idempotencyKey: "key",
          submissionHash: "h",
          createdAt: 1,
          isAtomic: false,
          items: [{ n: 0, execution: newExecution({ batchId: "batch" }), isBlocked: false }],
        },
        1000,
      );
      await expectFile(db, { id: "file", sizeBytes: 1, tenant: "a" }, 9, 1000);
      await recordFile(db, {
        id: "file",
        tenant: "a",
        name: "f",
        sizeBytes: 1,
        sha256: "h",
        contentType: "t",
        createdAt: 1,
        expiresAt: 9e15,
        uploadKey: "upload",
      });
      await expectFile(db, { id: "expected", sizeBytes: 1, tenant: "a" }, 9, 1000);
      const all = [
        `insert into output_chunks values ('${id}', 1, 0, 0, 0, '[1]', 1, x'61')`,
        `insert into artifacts values ('${id}', '${leased!.leaseId}', 'f', 1, 'h', 't')`,
        `insert into dead_letters (id, tenant, execution_id, error_type, created_at) values (1, 'a', '${id}', 'x', 1)`,
        `insert into webhook_events (seq, tenant, execution_id, type, data, created_at) values (1, 'a', '${id}', 'execution.failed', '{}', 1)`,
        `insert into webhook_deliveries (id, tenant, event_seq, execution_id, receiver, due_at, created_at, changed_at) values (1, 'a', 1, '${id}', 'r', 1, 1, 1)`,
        `update payloads set stdout = x'61', output = x'61' where execution_id = '${id}'`,
        `update executions set result_hash = 'h' where id = '${id}'`,
      ];
      for (const one of all) await db.client.execute(one);
      const { id: sessionId } = await created(db, { tenant: "a", idempotencyKey: "key" });
      await newCall(db, sessionId, { tenant: "a" });
      theirs = { sessionId, id, executionId: id, value: id, ids: JSON.stringify([...ids, "file"]) };
    });

    const rowsOf = async () => {
      const tables = [
        "executions",
        "payloads",
        "artifacts",
        "output_chunks",
        "input_files",
        "files",
      ];
      const others = [
        "batches",
        "dead_letters",
        "webhook_events",
        "webhook_deliveries",
        "removals",
      ];
      const read = [...tables, ...others, "execution_metadata", "tombstones", "sessions"].map(
        async (table) => {
          const { rows } = await store.db.client.execute(`select * from ${table}`);
          return [table, JSON.stringify(rows)];
        },
      );
      return Object.fromEntries(await Promise.all(read)) as Record<string, string>;
    };

    /** Numbers of records, or a text that is a record's id; each is tried. */
    const candidates = () => [
      theirs,
      { ...theirs, id: 1, value: 1, ids: "[1]" },
      { ...theirs, id: "file", prefix: "expected" },
      { ...theirs, id: "batch" },
      { ...theirs, id: theirs["sessionId"], value: theirs["sessionId"] },
      { ...theirs, id: "expected" },
    ];
    const usual: Values = {
      name: "f",
      sha256: "h",
      attempt: 1,
      from: 0,
      stdout: 0,
      stderr: 0,
      offset: 0,
      length: 9,
      most: 9,
      now: 1e15,
      until: 9,
      after: 0,
      eventSeq: 1,
      idempotencyKey: "key",
      uploadKey: "upload",
      keyId: null,
      prefix: "file",
      bytesDueAt: 9,
      dueAt: 9,
      isAtomic: 1,
      createdAt: 1e15,
    };

    test("bring no row and change none, in every statement", async () => {
      // It loads every statement.
      await import("../app.ts");
      const before = await rowsOf();
      const owned = /"tenant" = \?/;
      let tried = 0;
      for (const { text, names, isInsert, bound } of registry.map((bound) => ({
        bound,
        text: bound.text,
        names: bound.names,
        isInsert: /^\s*(with [^]*)?insert into/i.test(bound.text),
      }))) {
        if (!owned.test(text) || isInsert) continue;
        for (const mine of candidates()) {
          const values = Object.fromEntries(names.map((name) => [name, null]));
          const filled = bound({ ...values, ...usual, ...mine, tenant: "b" });
          const { rows } = await store.db.client.execute(filled);
          const shown = rows.filter(
            (row) => !Object.values(row).every((one) => one === null || one === 0),
          );
          expect({ text, shown }).toEqual({ text, shown: [] });
        }
        tried++;
      }
      expect(tried).toBeGreaterThan(25);
      expect(await rowsOf()).toEqual(before);
    });

    test("the same statements find them for their own tenant", async () => {
      let found = 0;
      for (const bound of registry) {
        if (!/^\s*select/i.test(bound.text) || !bound.names.includes("tenant")) continue;
        for (const mine of candidates()) {
          const values = Object.fromEntries(bound.names.map((name) => [name, null]));
          const filled = bound({ ...values, ...usual, ...mine, tenant: "a" });
          if ((await store.db.client.execute(filled)).rows.length > 0) {
            found++;
            break;
          }
        }
      }
      expect(found).toBeGreaterThan(20);
    });

    test("do not count in a position in the queue", async () => {
      await store.db.client.execute("insert into tenants (name, created_at) values ('c', 1)");
      const mine = [newExecution({ tenant: "c" }), newExecution({ tenant: "c" })];
      for (const execution of mine) await submitExecution(store.db, execution, 1000);
      const db = handleOf(store.db, "c");
      const last = (await findExecution(db, mine[1]!.id))!;
      expect([await queuePosition(db, last), await queuePosition(store.db, last)]).toEqual([2, 2]);
      const standings = await readStandings(db, [last.id, theirs["id"] as string]);
      expect([...standings]).toMatchObject([[last.id, { queuePosition: 2 }]]);
    });

    test("a handle sees its tenant's records, * sees all and makes none", async () => {
      const handle = (tenant: string) => handleOf(store.db, tenant);
      const id = theirs["id"] as string;
      expect(await findExecution(handle("a"), id)).toMatchObject({ id });
      expect(await findExecution(handle("b"), id)).toBeUndefined();
      expect(await findExecution(handle("*"), id)).toMatchObject({ id, tenant: "a" });
      const submitted = submitExecution(handle("*"), newExecution(), 1000);
      await expect(submitted).rejects.toThrow("no value for tenant");
      const own = newExecution({ tenant: "a" });
      await submitExecution(handle("b"), own, 1000);
      expect(await findExecution(store.db, own.id)).toMatchObject({ tenant: "b" });
    });
  });
});

describe("statement", () => {
  useOneStore();

  const update = statement(
    query
      .update(executions)
      .set({ requirements: given("requirements") as never })
      .where(eq(executions.id, given("id"))),
  );

  test("converts the values as their columns do; null stays null", () => {
    expect(update({ id: "x", requirements: ["a"] })).toMatchObject({ args: ['["a"]', "x"] });
    expect(update({ id: "x", requirements: null })).toMatchObject({ args: [null, "x"] });
  });

  test("a missing value is refused, not read as NULL", () => {
    expect(() => update({ id: "x" })).toThrow("no value for requirements");
  });

  test("rows of a table that changes often cannot be kept", () => {
    const built = query.select().from(executions);
    expect(() => keptRowsQuery(built)).toThrow("executions changes too often");
  });

  test("returns the same rows as drizzle, for lists of any length", async () => {
    const ids = ["a", "b", "c"];
    for (const id of ids) {
      await submitExecution(store.db, newExecution({ id, requirements: [id] }), 10);
    }
    const byIds = rowsQuery(
      query
        .select()
        .from(executions)
        .where(sql`${executions.id} in ${listed("ids")}`)
        .orderBy(executions.seq),
    );
    const drizzled = await store.db.orm.select().from(executions).orderBy(executions.seq);
    expect(await byIds(store.db, { ids: JSON.stringify(ids) })).toEqual(drizzled);
    expect(await byIds(store.db, { ids: JSON.stringify(["b"]) })).toEqual([drizzled[1]]);
    expect(await byIds(store.db, { ids: "[]" })).toEqual([]);
    const { lostAttempts: _lostAttempts, ...third } = drizzled[2]!;
    expect(await findExecution(store.db, "c")).toEqual(third);
  });
});
