import { afterAll, expect, test } from "vitest";
import { allOf } from "../../testing/all-of.ts";
import { operatorKey, startTenantService } from "../../testing/tenant-service.ts";
import { connect, ForbiddenError } from "../src/index.ts";

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

test("a tenant has limits, and sees its usage", async () => {
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
  expect(await operator.tenants.get("maps")).toMatchObject({ usage: { queued: 1 } });
  expect((await operator.tenants.list()).map(({ name }) => name)).toContain("maps");
});
