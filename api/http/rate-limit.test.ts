import { expect, test, vi } from "vitest";
import { jsonRequest } from "../../scripts/operate/command.ts";
import { createApp } from "../app.ts";
import { setLimits } from "../tenants/sql.ts";
import { by, testDeps } from "../testing/temp-store.ts";
import { store, useOneStore } from "../testing/use-store.ts";

useOneStore();

test.each([
  ["in memory", {}],
  ["in a database that processes share", { database_url: "libsql://one.example" }],
])("requests of all keys of a tenant are counted together, %s", async (_, shared) => {
  // The store in memory has no other clock.
  let now = Date.now();
  const keys = ["a-key-of-16-characters", "b-key-of-16-characters"];
  const limits = { api_rate_limit_requests: 9, api_rate_limit_window_seconds: 60 };
  const config = { api_auth_enabled: true, api_keys: keys, ...limits, ...shared };
  const app = createApp(testDeps(store.db, store.folder, () => now, config));
  const ask = (n: number) =>
    app.request("/nowhere", { headers: { Authorization: `Bearer ${keys[n % 2]}` } });
  const none = { max_queued: null, max_running: null, max_stored_bytes: null };
  const setMost = (max_requests: number | null) =>
    setLimits(store.db, "default", { ...none, max_cpu_s_day: null, max_requests }, by());
  await setMost(3);
  for (let n = 0; n < 3; n++) expect((await ask(n)).status).toBe(404);
  const refused = await ask(3);
  expect(refused.status).toBe(429);
  expect(((await refused.json()) as { detail: string }).detail).toContain("max_requests");
  const wait = Number(refused.headers.get("Retry-After"));
  expect(wait).toBeGreaterThan(0);
  expect(wait).toBeLessThanOrEqual(60);
  await setMost(null);
  now += 1000;
  expect((await ask(3)).status).toBe(404);
});

test("without the database, pages about the interface are there: a limit that cannot be read refuses nothing", async () => {
  const key = "a-key-of-16-characters";
  const config = { api_auth_enabled: true, api_keys: [key], api_rate_limit_requests: 9 };
  const app = createApp(testDeps(store.db, store.folder, Date.now, config));
  const ask = async () =>
    (await app.request("/openapi.json", { headers: { Authorization: `Bearer ${key}` } })).status;
  const locked = Object.assign(new Error("database is locked"), { code: "SQLITE_BUSY" });
  using execute = vi.spyOn(store.db.client, "execute").mockRejectedValue(locked);
  expect(await ask()).toBe(200);
  execute.mockRejectedValue(new Error("a fault of the service"));
  expect(await ask()).toBe(500);
});

test("processes that share a database count attempts to join together, apart from other requests", async () => {
  let now = 0;
  const limits = { api_rate_limit_requests: 1, api_rate_limit_window_seconds: 60 };
  const config = { ...limits, database_url: "libsql://one.example" };
  const apps = [0, 1].map(() => createApp(testDeps(store.db, store.folder, () => now, config)));
  const join = async (n: number): Promise<number> => {
    const guess = { code: "guessed", token_sha256: "0".repeat(64), name: "host" };
    const sent = jsonRequest("POST", guess);
    return (await apps[n % 2]!.request("/agent/v1/join", sent)).status;
  };
  for (let n = 0; n < 30; n++) expect(await join(n)).not.toBe(429);
  expect(await join(0)).toBe(429);
  expect(await join(1)).toBe(429);
  expect((await apps[0]!.request("/pool/stats")).status).toBe(200);
  now += 60_000;
  expect(await join(1)).not.toBe(429);
});
