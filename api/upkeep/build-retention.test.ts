import { expect, test } from "vitest";
import { store, useStore } from "../testing/use-store.ts";
import { testDeps } from "../testing/test-deps.ts";
import { sweep } from "./sweep.ts";

const dayMs = 86_400_000;
const keepDays = 7;

useStore();

test("builds are removed with their logs, except a job type's last one and the last image of each kind", async () => {
  let clock = 100 * dayMs;
  const insert = (id: string, jobType: string, spec: string, built: boolean) => ({
    sql: `insert into builds (id, job_type, tag, spec, image_ref, status, correlation_id, created_at, ended_at, digest, python_version, error)
      values (?, ?, 'latest', ?, '', ?, '', 0, ?, ?, ?, ?)`,
    args: [
      id,
      jobType,
      spec,
      built ? "built" : "failed",
      clock,
      ...(built ? ["digest", "3.13", null] : [null, null, "{}"]),
    ],
  });
  await store.db.client.batch(
    [
      insert("first", "ml", "a", true),
      insert("second", "ml", "a", true),
      insert("other", "ml", "b", true),
      insert("failed", "ml", "b", false),
      insert("last", "ml", "b", false),
      "insert into build_logs (build_id, lease_id, offset, data) values ('first', '', 0, x'00'), ('last', '', 0, x'00')",
    ],
    "write",
  );
  const ids = async (sql: string) => (await store.db.client.execute(sql)).rows.map((row) => row[0]);
  const deps = testDeps(store.db, store.folder, () => clock, {
    execution_retention_days: keepDays,
  });
  await sweep(deps);
  expect(await ids("select id from builds order by seq")).toHaveLength(5);
  clock += keepDays * dayMs + 1;
  await sweep(deps);
  expect(await ids("select id from builds order by seq")).toEqual(["second", "other", "last"]);
  expect(await ids("select build_id from build_logs")).toEqual(["last"]);
});
