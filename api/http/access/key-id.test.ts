import { expect, test } from "vitest";
import type { PollReply } from "../../../shared/wire/agent/lease.ts";
import { createApp } from "../../app.ts";
import { executions } from "../../store/schema/executions.ts";
import { ScriptedAgent } from "../../testing/scripted-agent.ts";
import { store, useStore } from "../../testing/use-store.ts";
import { testDeps } from "../../testing/test-deps.ts";

const token = "a-token-of-16-characters";
const [key, otherKey] = ["a-key-of-16-characters", "b-key-of-16-characters"] as const;

useStore();

function appWith(api_auth_enabled: boolean) {
  const config = { agent_tokens: [token], api_auth_enabled, api_keys: [key, otherKey] };
  const app = createApp(testDeps(store.db, store.folder, Date.now, config));

  async function post<T>(path: string, body: object, bearer: string): Promise<T> {
    const headers = { "Content-Type": "application/json", Authorization: `Bearer ${bearer}` };
    const reply = await app.request(path, { method: "POST", headers, body: JSON.stringify(body) });
    expect(reply.status).toBeLessThan(300);
    return (await reply.json()) as T;
  }

  return {
    submit: async (
      bearer: string,
      path = "/execute/async",
      body: object = { code: "1" },
    ): Promise<string> => (await post<{ job_id: string }>(path, body, bearer)).job_id,
    /** The keys that the stored jobs are of, oldest job first. */
    keyIds: async (): Promise<(string | null)[]> => {
      const stored = store.db.orm.select().from(executions);
      return (await stored.orderBy(executions.id)).map(({ keyId }) => keyId);
    },
    poll: () =>
      post<PollReply>(
        "/agent/v1/poll",
        new ScriptedAgent("http://unused", token).pollRequest(),
        token,
      ),
  };
}

test("a stored job names the key that submitted it, but does not contain it; an agent is not told", async () => {
  const { submit, keyIds, poll } = appWith(true);
  for (const bearer of [key, otherKey, key]) await submit(bearer);
  const [first, second, third] = await keyIds();
  expect(first).toMatch(/^[0-9a-f]{16}$/);
  expect(second).toMatch(/^[0-9a-f]{16}$/);
  expect(second).not.toBe(first);
  expect(third).toBe(first);
  const { jobs } = await poll();
  expect(jobs).not.toEqual([]);
  expect(JSON.stringify(jobs)).not.toContain(first);
});

test("a derived job belongs to the key that requested it", async () => {
  const { submit, keyIds } = appWith(true);
  const id = await submit(key);
  await submit(otherKey, `/jobs/${id}/rerun`, {});
  await submit(otherKey, `/jobs/${id}/fork`);
  const [first, rerun, derived] = await keyIds();
  expect(rerun).not.toBe(first);
  expect(derived).toBe(rerun);
});

test("without keys all clients count as one", async () => {
  const { submit, keyIds } = appWith(false);
  await submit(key);
  await submit(otherKey);
  expect(await keyIds()).toEqual([null, null]);
});
