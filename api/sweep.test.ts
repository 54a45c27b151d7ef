import { afterAll, beforeAll, expect, test } from "vitest";
import { findExecution } from "./store/read.ts";
import { submitExecution } from "./store/submit.ts";
import { sweep } from "./sweep.ts";
import { newExecution, openTempStore, type TempStore } from "./testing/temp-store.ts";
import { testDeps } from "./testing/test-deps.ts";

const dayMs = 24 * 3_600_000;
const now = 100 * dayMs;

let store: TempStore;
beforeAll(async () => {
  store = await openTempStore();
});
afterAll(() => store.close());

/** A dead letter of this age, of an execution of its own. */
async function letterOf(ageMs: number): Promise<string> {
  const execution = newExecution();
  await submitExecution(store.db, execution, 100);
  await store.db.client.execute({
    sql: "insert into dead_letters (execution_id, created_at) values (?, ?)",
    args: [execution.id, now - ageMs],
  });
  return execution.id;
}

test("dead letters go after dlq_retention_days, their records stay", async () => {
  const old = await letterOf(7 * dayMs + 1);
  const young = await letterOf(7 * dayMs);
  await sweep(testDeps(store.db, store.folder, () => now, { dlq_retention_days: 7 }));
  const { rows } = await store.db.client.execute("select execution_id from dead_letters");
  expect(rows.map((row) => row["execution_id"])).toEqual([young]);
  expect(await findExecution(store.db, old)).toBeDefined();
});
