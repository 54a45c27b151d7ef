import { afterEach, beforeEach, expect, test } from "vitest";
import type { PollReply } from "../../shared/wire/lease.ts";
import { createApp } from "../app.ts";
import type { Deps } from "../deps.ts";
import { ScriptedAgent } from "../testing/scripted-agent.ts";
import { openTempStore, type TempStore } from "../testing/temp-store.ts";
import { testDeps } from "../testing/test-deps.ts";

const [token, anotherToken] = ["a-token-of-16-characters", "b-token-of-16-characters"] as const;

let store: TempStore;
let deps: Deps;
let app: ReturnType<typeof createApp>;

beforeEach(async () => {
  store = await openTempStore();
  deps = testDeps(store.db, store.folder, Date.now, { agent_tokens: [token, anotherToken] });
  app = createApp(deps);
});
afterEach(() => store.close());

function post(path: string, body: object, bearer: string = token) {
  const headers = { "Content-Type": "application/json", Authorization: `Bearer ${bearer}` };
  return app.request(path, { method: "POST", headers, body: JSON.stringify(body) });
}

async function submit(): Promise<string> {
  const reply = await post("/execute/async", { code: "1" });
  return ((await reply.json()) as { job_id: string }).job_id;
}

async function status(id: string): Promise<unknown> {
  const reply = await app.request(`/jobs/${id}`);
  return ((await reply.json()) as { status: string }).status;
}

const newAgent = () => new ScriptedAgent("http://unused", token);

/** Leases up to `free_slots` jobs to an agent. */
async function poll(
  agent: ScriptedAgent,
  free_slots: number,
  wait_s = 0,
): Promise<PollReply["jobs"]> {
  const reply = await post("/agent/v1/poll", agent.pollRequest({ free_slots, wait_s }));
  return ((await reply.json()) as PollReply).jobs;
}

const leave = ({ id }: ScriptedAgent, bearer?: string) =>
  post("/agent/v1/leave", { agent_id: id }, bearer);

test("an agent that leaves hands back at once what it has not begun, and no more", async () => {
  const agent = newAgent();
  const [begun, waiting] = [await submit(), await submit()];
  const [first] = await poll(agent, 2);
  await post(`/agent/v1/leases/${first?.lease_id}/started`, { job_ref: "default@sha256:0" });

  const other = poll(newAgent(), 1, 20);
  expect((await leave(agent)).status).toBe(200);
  expect(await other).toMatchObject([{ execution_id: waiting, attempt: 2 }]);
  expect([await status(begun), await status(waiting)]).toEqual(["running", "running"]);
  expect((await leave(agent)).status).toBe(200);
});

test("whoever waits for a job, or for the end of one, is woken", async () => {
  const id = await submit();
  for (const topic of ["job", `execution:${id}`] as const) {
    const agent = newAgent();
    await poll(agent, 1);
    const wakes = deps.notifier.subscribe([topic]);
    await leave(agent);
    // Only a wake ends this wait, no time.
    await wakes.next(2 ** 31 - 1, new AbortController().signal);
    wakes.close();
  }
  const record = await app.request(`/jobs/${id}/result`);
  expect(await record.json()).toMatchObject({
    status: "failed",
    error: { type: "service_unavailable", message: "The agent left before the code began." },
  });
});

test("no agent takes another's leave", async () => {
  const agent = newAgent();
  const id = await submit();
  await poll(agent, 1);
  expect((await leave(agent, anotherToken)).status).toBe(403);
  expect(await status(id)).toBe("running");
});
