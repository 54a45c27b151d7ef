import { randomBytes } from "node:crypto";
import { beforeEach, expect, test } from "vitest";
import { by } from "../testing/temp-store.ts";
import { createApp } from "../app.ts";
import { addJoinCode, exchangeCode } from "../store/agents/agent-tokens.ts";
import { sha256 } from "../platform/hash.node.ts";
import { store, useStore } from "../testing/use-store.ts";
import { testDeps } from "../testing/test-deps.ts";

const newToken = () => `ala_${randomBytes(32).toString("hex")}`;

useStore();
let app: ReturnType<typeof createApp>;
let now = 1_000_000;
let reads = 0;
beforeEach(() => {
  const { client } = store.db;
  const execute = client.execute.bind(client);
  client.execute = (statement: Parameters<typeof execute>[0]) => {
    const text = typeof statement === "string" ? statement : (statement as { sql: string }).sql;
    if (text.includes("agent_tokens")) reads += 1;
    return execute(statement);
  };
  app = createApp(testDeps(store.db, store.folder, () => now));
});

async function statusWith(token: string): Promise<number> {
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  return (await app.request("/agent/v1/nowhere", { method: "POST", headers, body: "{}" })).status;
}

test("unknown tokens of one client cause a limited number of reads, and agents at its address still work, new ones too", async () => {
  const [token, newcomer] = [newToken(), newToken()];
  for (const joining of [token, newcomer]) {
    const tokenHash = await sha256(joining);
    await addJoinCode(store.db, { codeHash: tokenHash, name: null, expiresAt: now * 2 }, by());
    const agent = { id: crypto.randomUUID(), tokenHash, name: "n" };
    await exchangeCode(store.db, tokenHash, agent, now);
  }
  const known = await statusWith(token);
  expect([401, 429]).not.toContain(known);

  reads = 0;
  const answers = new Set<number>();
  for (let n = 0; n < 200; n++) answers.add(await statusWith(newToken()));
  expect(answers).toEqual(new Set([401, 429]));
  expect(reads).toBeLessThanOrEqual(31);
  expect(await statusWith(newcomer)).toBe(known);
  now += 2000;
  expect(await statusWith(token)).toBe(known);
  now += 60_000;
  expect(await statusWith(newToken())).toBe(401);
});
