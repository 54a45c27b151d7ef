import { expect, test } from "vitest";
import { advance } from "../store/jobs/advance.ts";
import { submitExecution } from "../store/jobs/submit.ts";
import { remove } from "../jobs/remove.ts";
import { sweep } from "./sweep.ts";
import { by, newExecution } from "../testing/temp-store.ts";
import { store, useOneStore } from "../testing/use-store.ts";
import { clientOf, testDeps } from "../testing/test-deps.ts";

const dayMs = 24 * 3_600_000;

useOneStore();

test("the key of a removed execution is given away again when its record would have been", async () => {
  let now = 100 * dayMs;
  const deps = testDeps(store.db, store.folder, () => now, { execution_retention_days: 7 });
  const submit = () => submitExecution(store.db, newExecution({ idempotencyKey: "key" }), 10);
  const execution = newExecution({ idempotencyKey: "key" });
  await submitExecution(store.db, execution, 10);
  await advance(store.db, { id: execution.id }, { kind: "cancel" }, now);
  await remove(clientOf(deps), execution.id, by(now));
  expect(await submit()).toEqual({ kind: "removed", id: execution.id });

  now += 7 * dayMs;
  await sweep(deps);
  expect(await submit()).toEqual({ kind: "removed", id: execution.id });
  now += 1;
  await sweep(deps);
  expect(await submit()).toMatchObject({ kind: "accepted" });
});

test("one sweep removes all old tombstones and batches", async () => {
  const now = 200 * dayMs;
  const deps = testDeps(store.db, store.folder, () => now, { execution_retention_days: 7 });
  const { client } = store.db;
  const numbers = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 300)";
  await client.batch(
    [
      `${numbers} insert into tombstones (idempotency_key, execution_id, removed_at) select 'k' || i, 't' || i, 1 from n`,
      `${numbers} insert into batches (id, submission_hash, outcome, created_at) select 'b' || i, '', x'', 1 from n`,
    ],
    "write",
  );
  await sweep(deps);
  const { rows } = await client.execute(
    "select (select count(*) from tombstones), (select count(*) from batches)",
  );
  expect([rows[0]?.[0], rows[0]?.[1]]).toEqual([0, 0]);
});
