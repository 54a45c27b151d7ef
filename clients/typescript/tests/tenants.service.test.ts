import { afterAll, expect, test } from "vitest";
import { allOf } from "../../testing/all-of.ts";
import { operatorKey, startTenantService } from "../../testing/tenant-service.ts";
import { connect, ForbiddenError, NotFoundError, QuotaExceededError } from "../src/index.ts";

const api = await startTenantService();
afterAll(() => api.close());
const operator = connect({ url: api.url, key: operatorKey });

test("a key is made, rotated and revoked, and what was done is in the audit log", async () => {
  const made = await operator.keys.create({
    name: "ci",
    tenant: "search",
    scopes: ["run", "read"],
  });
  expect(made).toMatchObject({ tenant: "search", revoked_at: null });
  const [listed] = await operator.keys.list();
  expect(listed).toMatchObject({ id: made.id, name: "ci", scopes: ["run", "read"] });
  expect(listed).not.toHaveProperty("key");
  await expect(connect({ url: api.url, key: made.key }).keys.list()).rejects.toThrow(
    ForbiddenError,
  );
  const rotated = await operator.keys.rotate(made.id, { old_valid_s: 0 });
  expect(rotated.id).toBe(made.id);
  expect(rotated.key).not.toBe(made.key);
  expect((await operator.keys.revoke(made.id)).revoked_at).not.toBeNull();
  const entries = await allOf(operator.audit({ tenant: "search" }));
  expect(entries.map(({ action }) => action)).toEqual(["key.revoke", "key.rotate", "key.create"]);
  expect(await allOf(operator.audit({ action: "key.create", limit: 1 }))).toHaveLength(1);
});

test("a tenant has limits, sees its usage, and a met limit is an error with its figures", async () => {
  const { key } = await operator.keys.create({
    name: "m",
    tenant: "maps",
    scopes: ["run", "read"],
  });
  expect(await operator.tenants.setLimits("maps", { max_queued: 1 })).toMatchObject({
    name: "maps",
    limits: { max_queued: 1, max_running: null },
  });
  const maps = connect({ url: api.url, key, retries: 0 });
  await maps.submit("1");
  expect(await maps.usage()).toMatchObject({ tenant: "maps", usage: { queued: 1 } });
  const error: unknown = await maps.submit("1").catch((caught: unknown) => caught);
  expect(error).toBeInstanceOf(QuotaExceededError);
  expect(error).toMatchObject({
    retryAfterS: 5,
    problem: { quota: "max_queued", limit: 1, used: 1 },
  });
  expect(await operator.tenants.get("maps")).toMatchObject({ usage: { queued: 1 } });
  expect((await operator.tenants.list()).map(({ name }) => name)).toContain("maps");
});

test("with the option tenant, a client acts for that tenant, and reads all with *", async () => {
  const { key } = await operator.keys.create({
    name: "t",
    tenant: "tiles",
    scopes: ["run", "read"],
  });
  const { job_id } = await connect({ url: api.url, key }).submit("1");
  await expect(operator.get(job_id)).rejects.toThrow(NotFoundError);
  const tiles = connect({ url: api.url, key: operatorKey, tenant: "tiles" });
  expect(await tiles.get(job_id)).toMatchObject({ execution_id: job_id });
  const all = connect({ url: api.url, key: operatorKey, tenant: "*" });
  const found = (await allOf(all.list())).find(({ execution_id }) => execution_id === job_id);
  expect(found).toMatchObject({ tenant: "tiles" });
  await expect(connect({ url: api.url, key, tenant: "maps" }).get(job_id)).rejects.toThrow(
    ForbiddenError,
  );
});
