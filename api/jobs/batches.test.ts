import { afterEach, beforeEach, expect, test } from "vitest";
import type { InStatement } from "@libsql/client";
import { database } from "../store/database.ts";
import { firstIdAt } from "../store/retention.ts";
import {
  handleOf,
  leaseJob,
  newExecution,
  openTempStore,
  type TempStore,
} from "../testing/temp-store.ts";
import {
  cancelMembers,
  findBatch,
  forgetBatches,
  type NewBatch,
  submitBatch,
} from "./batch-sql.ts";
import { listExecutions } from "./executions.ts";
import type { LeasedRow } from "./sql.ts";
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

test("the cancel of a batch ends its members in pieces, and asks the agent of one that was leased in between", async () => {
  const members = Array.from({ length: 250 }, () => newExecution());
  await submitBatch(store.db, batchOf(members), most);
  const { client } = store.db;
  const pieces: number[] = [];
  let leased: LeasedRow | undefined;
  const batch = async (statements: InStatement[]) => {
    const results = await client.batch(statements, "write");
    pieces.push(results[0]!.rows.length);
    leased ??= await leaseJob(store.db);
    return results;
  };
  const observed = database(Object.assign(Object.create(client) as typeof client, { batch }));
  const changed = await cancelMembers(observed, "batch", 9);
  expect(pieces).toEqual([100, 100, 49]);
  expect(new Set(changed.map(({ id }) => id))).toEqual(new Set(members.map(({ id }) => id)));
  const { counts } = (await findBatch(store.db, "batch"))!;
  expect(Object.fromEntries(counts)).toEqual({ cancelled: 249, running: 1 });
  const asked = changed.filter(({ status }) => status === "running");
  expect(asked).toMatchObject([{ id: leased?.id, cancelRequested: true }]);
});

test.each([3, 1500])(
  "a list by time has what was created since, also with a clock that is ahead and if it was stored late, beside %i jobs that came after",
  async (count) => {
    const at = (createdAt: number, n = 0) => {
      const id = `${firstIdAt(createdAt)}-7000-8000-${String(n).padStart(12, "0")}`;
      return newExecution({ id, createdAt });
    };
    const [time, later] = [1_000_000, 1_030_000];
    const [ahead, late] = [at(time + 2), at(time)];
    for (const job of [at(time - 9), ahead, at(time - 1)])
      await submitExecution(store.db, job, 5000);
    const after = Array.from({ length: count }, (_, n) => at(later, n));
    await submitBatch(store.db, batchOf(after, { createdAt: later }), 5000);
    await submitExecution(store.db, late, 5000);
    const found = await listExecutions(handleOf(store.db), { createdAfter: time }, 5000, 0);
    const expected = [late, ...after.toReversed(), ahead].map(({ id }) => id);
    expect(found.map(({ id }) => id)).toEqual(expected);
  },
);
