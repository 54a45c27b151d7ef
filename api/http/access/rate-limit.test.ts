import { expect, test } from "vitest";
import { createApp } from "../../app.ts";
import { store, useOneStore } from "../../testing/use-store.ts";
import { testDeps } from "../../testing/test-deps.ts";

useOneStore();

test("processes that share a database count attempts to join together, apart from other requests", async () => {
  let now = 0;
  const limits = { api_rate_limit_requests: 1, api_rate_limit_window_seconds: 60 };
  const config = { ...limits, database_url: "libsql://one.example" };
  const apps = [0, 1].map(() => createApp(testDeps(store.db, store.folder, () => now, config)));
  const join = async (n: number): Promise<number> => {
    const body = JSON.stringify({ code: "guessed", token_sha256: "0".repeat(64), name: "host" });
    const headers = { "Content-Type": "application/json" };
    const reply = await apps[n % 2]!.request("/agent/v1/join", { method: "POST", headers, body });
    return reply.status;
  };
  for (let n = 0; n < 30; n++) expect(await join(n)).not.toBe(429);
  expect(await join(0)).toBe(429);
  expect(await join(1)).toBe(429);
  expect((await apps[0]!.request("/pool/stats")).status).toBe(200);
  now += 60_000;
  expect(await join(1)).not.toBe(429);
});
