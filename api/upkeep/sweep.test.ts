import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import { findExecution } from "../store/jobs/read.ts";
import { submitExecution } from "../store/jobs/submit.ts";
import { expire, removeOld, sweep } from "./sweep.ts";
import { newExecution } from "../testing/temp-store.ts";
import { store, useOneStore } from "../testing/use-store.ts";
import { testDeps } from "../testing/test-deps.ts";

const dayMs = 24 * 3_600_000;
const now = 100 * dayMs;

useOneStore();

/** A dead letter of this age, with a new execution. */
async function letterOf(ageMs: number): Promise<string> {
  const execution = newExecution();
  await submitExecution(store.db, execution, 10_000);
  await store.db.client.execute({
    sql: "insert into dead_letters (execution_id, error_type, created_at) values (?, 'oom', ?)",
    args: [execution.id, now - ageMs],
  });
  return execution.id;
}

test("many dead letters are removed in portions, and other work runs in between", async () => {
  for (let i = 0; i < 120; i++) await letterOf(20 * dayMs);
  const letters = "select count(*) from dead_letters";
  const count = async () => Number((await store.db.client.execute(letters)).rows[0]?.[0]);
  const seen = new Set<number>();
  const deps = testDeps(store.db, store.folder, () => now, { dlq_retention_days: 7 });
  const swept = sweep(deps).then(() => "swept");
  do {
    seen.add(await count());
  } while ((await Promise.race([swept, setImmediate("sweeping")])) === "sweeping");
  expect(await count()).toBe(0);
  expect([...seen].filter((left) => left > 0 && left < 120)).not.toEqual([]);
});

test("dead letters are removed after dlq_retention_days; their records stay", async () => {
  const old = await letterOf(7 * dayMs + 1);
  const young = await letterOf(7 * dayMs);
  await sweep(testDeps(store.db, store.folder, () => now, { dlq_retention_days: 7 }));
  const { rows } = await store.db.client.execute("select execution_id from dead_letters");
  expect(rows.map((row) => row["execution_id"])).toEqual([young]);
  expect(await findExecution(store.db, old)).toBeDefined();
});

test("the check for expired leases, which runs every second, only reads if there are none", async () => {
  const { client } = store.db;
  const execute = client.execute.bind(client);
  const writes: string[] = [];
  client.execute = (statement: Parameters<typeof execute>[0]) => {
    const text = typeof statement === "string" ? statement : (statement as { sql: string }).sql;
    if (/^\s*(insert|update|delete)/i.test(text)) writes.push(text);
    return execute(statement);
  };
  await expire(testDeps(store.db, store.folder, () => now));
  client.execute = execute;
  expect(writes).toEqual([]);
});

test("a removal returns whether more is left, so that the next one follows soon", async () => {
  for (let i = 0; i < 1001; i++) await letterOf(20 * dayMs);
  const deps = testDeps(store.db, store.folder, () => now, { dlq_retention_days: 7 });
  expect(await removeOld(deps)).toBe(true);
  expect(await removeOld(deps)).toBe(false);
});
