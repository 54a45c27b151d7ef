import { expect, test } from "vitest";
import { store, useOneStore } from "../testing/use-store.ts";
import { by, handleOf } from "../testing/temp-store.ts";
import { listAudit } from "./audit.ts";
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
  await setLimits(db, "search", { ...none, max_queued: 5, max_requests: 7 }, by(1000));
  await setLimits(db, "search", { ...none, max_running: 2 }, by(2000));
  await setLimits(db, "search", { ...none, max_running: 2 }, by(3000));
  const row = await findTenant(handleOf(db, "search"), "search");
  expect(usageOf(row!, 0).limits).toEqual({ ...none, max_queued: 1000, max_running: 2 });
  expect(row!.createdAt).toBe(1000);
  expect((await listTenants(db)).map(({ name }) => name)).toEqual(["default", "search"]);
  expect(await findTenant(handleOf(db, "default"), "search")).toBeUndefined();
  const entries = await listAudit(db, { action: "tenant.limits", tenant: "search" }, 9);
  expect(entries.map(({ at }) => at)).toEqual([2000, 1000]);
});
