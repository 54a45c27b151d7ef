import { eq, sql } from "drizzle-orm";
import { expect, test } from "vitest";
import { newExecution } from "../testing/temp-store.ts";
import { store, useOneStore } from "../testing/use-store.ts";
import { findExecution } from "./jobs/read.ts";
import { executions } from "./schema.ts";
import { listed, query, rowsQuery, statement } from "./statement.ts";
import { submitExecution } from "./jobs/submit.ts";

useOneStore();

const update = statement(
  query
    .update(executions)
    .set({ requirements: sql.placeholder("requirements") as never })
    .where(eq(executions.id, sql.placeholder("id"))),
);

test("converts the values as their columns do; null stays null", () => {
  expect(update({ id: "x", requirements: ["a"] })).toMatchObject({ args: ['["a"]', "x"] });
  expect(update({ id: "x", requirements: null })).toMatchObject({ args: [null, "x"] });
});

test("a missing value is refused, not read as NULL", () => {
  expect(() => update({ id: "x" })).toThrow("no value for requirements");
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
