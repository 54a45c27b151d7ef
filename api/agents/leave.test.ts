import { randomUUID } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import { beforeEach, describe, expect, test } from "vitest";
import type { PollReply, PollRequest } from "../../shared/wire/agent/lease.ts";
import { createApp } from "../app.ts";
import type { Deps } from "../deps.ts";
import { findAgent } from "../store/agents/agents.ts";
import { ScriptedAgent } from "../testing/scripted-agent.ts";
import { store, useStore } from "../testing/use-store.ts";
import { testDeps } from "../testing/test-deps.ts";

const [token, anotherToken] = ["a-token-of-16-characters", "b-token-of-16-characters"] as const;

useStore();
let deps: Deps;
let app: ReturnType<typeof createApp>;

beforeEach(() => {
  deps = testDeps(store.db, store.folder, Date.now, { agent_tokens: [token, anotherToken] });
  app = createApp(deps);
});

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

function pollReply(id: string, free_slots: number, changes: Partial<PollRequest> = {}) {
  const request = new ScriptedAgent("http://unused", token).pollRequest({ free_slots, ...changes });
  return post("/agent/v1/poll", { ...request, agent: { ...request.agent, id } });
}

/** Leases up to `free_slots` jobs to an agent. */
async function poll(id: string, free_slots: number, wait_s = 0): Promise<PollReply["jobs"]> {
  const reply = await pollReply(id, free_slots, { wait_s });
  return ((await reply.json()) as PollReply).jobs;
}

/** Waits until a poll of this agent has arrived. */
async function untilKnown(agent: string): Promise<void> {
  while (!(await findAgent(deps.db, agent))) await setImmediate();
}

const crashed = (agent_id: string, bearer?: string) =>
  post("/agent/v1/leave", { agent_id, crashed: true }, bearer);
const leave = (agent_id: string, bearer?: string) =>
  post("/agent/v1/leave", { agent_id, crashed: false }, bearer);

async function refused(lease: string | undefined): Promise<number> {
  return (await post(`/agent/v1/leases/${lease}/started`, { job_ref: null })).status;
}

test("a job that a stopping agent releases before its code started keeps its attempt", async () => {
  const agent = randomUUID();
  const id = await submit();
  const error = { type: "service_unavailable", message: "The agent stopped.", phase: "startup" };
  for (let times = 1; times <= 3; times++) {
    const [lease] = await poll(agent, 1);
    expect(lease).toMatchObject({ execution_id: id, attempt: 1 });
    const release = { error, agent_stops: true };
    const reply = await post(`/agent/v1/leases/${lease?.lease_id}/release`, release);
    expect(reply.status).toBe(200);
  }
  expect(await status(id)).toBe("queued");
});

test("jobs that a leaving agent has not started are leased again at once and keep their attempt", async () => {
  const agent = randomUUID();
  const [begun, waiting] = [await submit(), await submit()];
  const [first] = await poll(agent, 2);
  await post(`/agent/v1/leases/${first?.lease_id}/started`, { job_ref: "default@sha256:0" });

  expect((await leave(agent)).status).toBe(200);
  expect(await poll(randomUUID(), 2)).toMatchObject([
    { execution_id: begun, attempt: 2 },
    { execution_id: waiting, attempt: 1 },
  ]);
  expect(await refused(first?.lease_id)).toBe(409);
  expect((await leave(agent)).status).toBe(200);
});

describe("after an agent has left", () => {
  test("its waiting poll gets no job", async () => {
    const agent = randomUUID();
    const stale = poll(agent, 1, 1);
    await untilKnown(agent);
    await leave(agent);
    const id = await submit();
    expect(await stale).toEqual([]);
    expect(await status(id)).toBe("queued");
  });

  test("its late poll is refused, and the agent is not listed again", async () => {
    const agent = randomUUID();
    await poll(agent, 1);
    await leave(agent);
    expect((await pollReply(agent, 1)).status).toBe(409);
    expect(await (await app.request("/pool/stats")).text()).not.toContain(agent);
  });
});

describe("an agent that crashed, as the next agent on its host reports", () => {
  test("loses its jobs: all are leased again at once as second attempts, even those not started", async () => {
    const agent = randomUUID();
    const [begun, waiting] = [await submit(), await submit()];
    const [first] = await poll(agent, 2);
    await post(`/agent/v1/leases/${first?.lease_id}/started`, { job_ref: "default@sha256:0" });
    expect((await crashed(agent)).status).toBe(200);
    expect(await poll(randomUUID(), 2)).toMatchObject([
      { execution_id: begun, attempt: 2 },
      { execution_id: waiting, attempt: 2 },
    ]);
    expect(await refused(first?.lease_id)).toBe(409);
    expect((await crashed(agent)).status).toBe(200);
  });

  test("continues without those jobs if it is still alive", async () => {
    const agent = randomUUID();
    await submit();
    const [lost] = await poll(agent, 1);
    await crashed(agent);
    const reply = await pollReply(agent, 0, { leases: [lost!.lease_id] });
    expect(await reply.json()).toMatchObject({ lost: [lost!.lease_id] });
  });
});

test("a leave wakes agents that wait for a job and clients that wait for its end", async () => {
  const id = await submit();
  for (const topic of ["queue", `execution:${id}`] as const) {
    const agent = randomUUID();
    const [lease] = await poll(agent, 1);
    await post(`/agent/v1/leases/${lease?.lease_id}/started`, { job_ref: null });
    const wakes = deps.notifier.subscribe([topic === "queue" ? "job" : topic]);
    await leave(agent);
    // Only a wake-up ends this wait, never a timeout.
    await wakes.next(2 ** 31 - 1, new AbortController().signal);
    wakes.close();
  }
  expect(await status(id)).toBe("failed");
});

test("an agent cannot send the leave of another agent, nor report it dead", async () => {
  const agent = randomUUID();
  const id = await submit();
  await poll(agent, 1);
  expect((await leave(agent, anotherToken)).status).toBe(403);
  expect((await crashed(agent, anotherToken)).status).toBe(403);
  expect(await status(id)).toBe("running");
});
