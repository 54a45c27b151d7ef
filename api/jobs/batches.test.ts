import { afterEach, beforeEach, expect, test } from "vitest";
import { newExecution, openTempStore, type TempStore } from "../testing/temp-store.ts";
import { findBatch, forgetBatches, type NewBatch, submitBatch } from "./batch-sql.ts";
import { type NewExecution, submitExecution } from "./submit.ts";

const most = 1000;
let store: TempStore;
beforeEach(async () => {
  store = await openTempStore();
});
afterEach(() => store.close());

function batchOf(executions: NewExecution[], changes: Partial<NewBatch> = {}): NewBatch {
  const items = executions.map((execution, n) => ({ n, execution, isBlocked: false }));
  const key = { keyId: null, idempotencyKey: null, submissionHash: "batch" };
  return { id: "batch", createdAt: 5, isAtomic: false, ...key, items, ...changes };
}

async function ranks(): Promise<unknown[]> {
  const sql = "select job_type, tenant, turn, rank from executions order by seq";
  return (await store.db.client.execute(sql)).rows.map((row) =>
    Array.from({ length: 4 }, (_, i) => row[i]),
  );
}

test("jobs of a batch get the turns and ranks that they would get if submitted one after the other", async () => {
  const shared = { tenant: "a" };
  const jobs = (): NewExecution[] =>
    ["x", "y", "x", "x", "z", "y"].map((jobType, n) =>
      newExecution({ ...shared, jobType, priority: n % 3 }),
    );
  const fronts = "insert into queue_fronts (job_type, turn) values ('x', 4), ('y', 9), ('z', 2)";
  await store.db.client.execute(fronts);
  for (const execution of jobs()) await submitExecution(store.db, execution, most);
  for (const execution of jobs()) await submitExecution(store.db, execution, most);
  const expected = await ranks();

  store.close();
  store = await openTempStore();
  await store.db.client.execute(fronts);
  await submitBatch(store.db, batchOf(jobs(), shared), most);
  await submitBatch(store.db, batchOf(jobs(), { ...shared, id: "next" }), most);
  expect(await ranks()).toEqual(expected);
});

test("the same transaction sent again changes nothing and tells the same", async () => {
  const batch = batchOf([newExecution(), newExecution({ idempotencyKey: "k" })]);
  const first = await submitBatch(store.db, batch, most);
  expect(first.outcome.map(({ isAccepted }) => isAccepted)).toEqual([true, true]);
  expect(await submitBatch(store.db, batch, most)).toEqual(first);
  expect(await ranks()).toHaveLength(2);
});

test("an atomic batch that is refused leaves nothing behind", async () => {
  const held = newExecution({ idempotencyKey: "k" });
  await submitExecution(store.db, held, most);
  const other = newExecution({ idempotencyKey: "k", submissionHash: "other" });
  const batch = batchOf([newExecution(), other], { isAtomic: true, idempotencyKey: "b" });
  const { outcome } = await submitBatch(store.db, batch, most);
  expect(outcome.map(({ isAccepted, id }) => [isAccepted, id])).toEqual([
    [false, null],
    [false, held.id],
  ]);
  expect(await findBatch(store.db, "batch")).toBeUndefined();
  expect(await ranks()).toHaveLength(1);
});

test("a job that is blocked is not accepted, and takes no room", async () => {
  const batch = batchOf([newExecution(), newExecution(), newExecution()]);
  batch.items[0]!.isBlocked = true;
  const { outcome } = await submitBatch(store.db, batch, 2);
  expect(outcome.map(({ isAccepted }) => isAccepted)).toEqual([false, true, true]);
});

test("a batch without members is forgotten after the retention time", async () => {
  await submitBatch(store.db, batchOf([newExecution()]), most);
  await submitBatch(store.db, batchOf([newExecution()], { id: "full" }), 0);
  await forgetBatches(store.db, 6, 10);
  expect(await findBatch(store.db, "batch")).toMatchObject({ id: "batch" });
  expect(await findBatch(store.db, "full")).toBeUndefined();
});
