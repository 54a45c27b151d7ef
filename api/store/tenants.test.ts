import { expect, test } from "vitest";
import { store, useOneStore } from "../testing/use-store.ts";
import { handleOf } from "../testing/temp-store.ts";
import { findTenant, listTenants, setLimits, usageOf } from "./tenants.ts";

useOneStore();

const none = {
  max_queued: null,
  max_running: null,
  max_stored_bytes: null,
  max_cpu_s_day: null,
  max_requests: null,
};

test("limits make a tenant, replace all its limits, and tell whether they changed", async () => {
  const { db } = store;
  const note = {
    sql: "INSERT INTO settings (name, value) SELECT 'changed ' || hex(randomblob(8)), '1' WHERE changes() > 0",
    args: [],
  };
  await setLimits(db, "search", { ...none, max_queued: 5, max_requests: 7 }, 1000, [note]);
  await setLimits(db, "search", { ...none, max_running: 2 }, 2000, [note]);
  await setLimits(db, "search", { ...none, max_running: 2 }, 3000, [note]);
  const row = await findTenant(handleOf(db, "search"), "search");
  expect(usageOf(row!, 0).limits).toEqual({ ...none, max_queued: 1000, max_running: 2 });
  expect(row!.createdAt).toBe(1000);
  expect((await listTenants(db)).map(({ name }) => name)).toEqual(["default", "search"]);
  expect(await findTenant(handleOf(db, "default"), "search")).toBeUndefined();
  const { rows } = await db.client.execute("SELECT 1 FROM settings WHERE name LIKE 'changed %'");
  expect(rows).toHaveLength(2);
});
