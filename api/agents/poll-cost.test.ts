import { beforeEach, expect, test } from "vitest";
import { createApp } from "../app.ts";
import type { Deps, Notifier } from "../deps.ts";
import { listAgents } from "../store/agents/agents.ts";
import { ScriptedAgent } from "../testing/scripted-agent.ts";
import { store, useStore } from "../testing/use-store.ts";
import { testDeps } from "../testing/test-deps.ts";

const token = "a-token-of-16-characters";

useStore();
let deps: Deps;
let [now, asked] = [0, 0];
beforeEach(() => {
  const { client } = store.db;
  const [execute, batch] = [client.execute.bind(client), client.batch.bind(client)];
  const counting =
    <Args extends unknown[], Result>(call: (...args: Args) => Result) =>
    (...args: Args): Result => {
      asked += 1;
      return call(...args);
    };
  client.execute = counting(execute);
  client.batch = counting(batch);
  deps = testDeps(store.db, store.folder, () => now, { agent_tokens: [token] });
  deps.notifier = nobody;
});

/** A notifier that never wakes anyone, and on which every wait times out at once. */
const nobody: Notifier = {
  notify: () => false,
  subscribe: () => ({
    next: (timeoutMs) => Promise.resolve(void (now += timeoutMs)),
    passOn() {},
    close() {},
  }),
};

/** Counts the database calls of a poll that finds nothing. Over HTTP, each call is a request. */
async function callsOf(wait_s: number): Promise<number> {
  const agent = new ScriptedAgent("http://unused", "");
  const images = [deps.config.base_image];
  const app = createApp(deps);
  const poll = (wait: number) =>
    app.request("/agent/v1/poll", {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
      body: JSON.stringify(agent.pollRequest({ images, free_slots: 1, wait_s: wait })),
    });
  await poll(0);
  asked = 0;
  expect(await (await poll(wait_s)).json()).toMatchObject({ jobs: [] });
  return asked;
}

test("the number of a poll's database calls is limited by its waiting time", async () => {
  expect(await callsOf(5)).toBeLessThanOrEqual(30);
  // The usual waiting time of an agent's poll.
  expect(await callsOf(15)).toBeLessThanOrEqual(50);
});

test("a poll that repeats an agent's status within a second does not write it", async () => {
  const agent = new ScriptedAgent("http://unused", "");
  const app = createApp(deps);
  const lastSeen = async (pauseMs: number) => {
    now += pauseMs;
    await app.request("/agent/v1/poll", {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
      body: JSON.stringify(agent.pollRequest({ free_slots: 0, wait_s: 0 })),
    });
    return (await listAgents(store.db))[0]?.lastSeenAt;
  };
  const first = await lastSeen(0);
  expect(await lastSeen(500)).toBe(first);
  expect(await lastSeen(500)).toBe(now);
});
