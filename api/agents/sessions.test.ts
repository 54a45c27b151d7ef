import { beforeEach, describe, expect, test } from "vitest";
import { type PollReply, type ResultReply, takeHeader } from "../../shared/wire/agent/lease.ts";
import { createApp } from "../app.ts";
import type { Deps } from "../deps.ts";
import { findExecution } from "../store/jobs/read.ts";
import { findSession } from "../store/sessions/sessions.ts";
import { readyReport, ScriptedAgent, success } from "../testing/scripted-agent.ts";
import { created, newCall } from "../testing/session-store.ts";
import { testDeps } from "../testing/test-deps.ts";
import { store, useStore } from "../testing/use-store.ts";
import { sweepSessions } from "../sessions/sweep-sessions.ts";

const token = "a-token-of-16-characters";

useStore();
let deps: Deps;
let app: ReturnType<typeof createApp>;
let now: number;
let agent: ScriptedAgent;
let leases: string[];

beforeEach(() => {
  now = 1_000_000;
  deps = testDeps(store.db, store.folder, () => now, { agent_tokens: [token], lease_ttl_s: 100 });
  app = createApp(deps);
  agent = new ScriptedAgent("http://unused", token);
  agent.maxSessions = 2;
  leases = [];
});

async function post(path: string, body: object, headers: Record<string, string> = {}) {
  const own = { "Content-Type": "application/json", Authorization: `Bearer ${token}` };
  const request = { method: "POST", headers: { ...own, ...headers }, body: JSON.stringify(body) };
  const reply = await app.request(`/agent/v1${path}`, request);
  return { status: reply.status, body: await reply.json() };
}

/** A poll without a free slot, of an agent that holds its sessions and its calls. */
async function poll(changes: object = {}): Promise<PollReply> {
  const images = [deps.config.base_image];
  const asked = { free_slots: 0, images, leases, ...changes };
  const { body } = await post("/poll", agent.pollRequest(asked));
  const reply = body as PollReply;
  for (const { lease_id } of reply.sessions ?? []) agent.heldSessions.add(lease_id);
  leases.push(...reply.jobs.map(({ lease_id }) => lease_id));
  return reply;
}

const newSession = () =>
  created(store.db, { createdAt: now, expiresAt: now + 1e6, idleTimeoutS: null });
const postSession = (lease: string, what: string, body: object) =>
  post(`/sessions/${lease}/${what}`, body);

/** A session that the agent serves. */
async function serving() {
  const { id } = await newSession();
  const [leased] = (await poll()).sessions!;
  const lease = leased!.lease_id;
  expect((await postSession(lease, "ready", readyReport)).status).toBe(200);
  return { id, lease };
}

const result = (lease: string) => post(`/leases/${lease}/result`, success, { [takeHeader]: "1" });

describe("an agent that holds sessions", () => {
  test("gets those it has room for, with what it needs to start them", async () => {
    const [first] = [await newSession(), await newSession(), await newSession()];
    const { sessions } = await poll();
    expect(sessions).toHaveLength(2);
    expect(sessions![0]).toMatchObject({
      session_id: first.id,
      tenant: "default",
      image: deps.config.base_image,
      env: { A: "b" },
      job_type: { name: "default" },
    });
    expect((await poll()).sessions).toEqual([]);
  });

  test("gets none if it says nothing of sessions, or an operator drains it", async () => {
    await newSession();
    agent.maxSessions = 0;
    expect((await poll()).sessions).toEqual([]);
    agent.maxSessions = 1;
    await store.db.client.execute("update agents set draining_at = 1");
    expect((await poll()).sessions).toEqual([]);
  });

  test("gets calls without a free slot, also while it drains: one at a time in each session", async () => {
    const { id, lease } = await serving();
    const [a, b] = [await newCall(store.db, id), await newCall(store.db, id)];
    await store.db.client.execute("update agents set draining_at = 1");
    const [call] = (await poll()).jobs;
    expect(call).toMatchObject({
      execution_id: a,
      attempt: 1,
      call: { session_lease_id: lease, number: 1, context: "default", contexts: [], env: {} },
    });
    expect((await poll()).jobs).toEqual([]);
    const { body } = await result(call!.lease_id);
    const [next] = (body as ResultReply).jobs;
    expect(next).toMatchObject({ execution_id: b, call: { number: 2 } });
  });

  test("gets a call again if the reply with it was lost", async () => {
    const { id } = await serving();
    await newCall(store.db, id);
    const [call] = (await poll()).jobs;
    leases = [];
    expect((await poll()).jobs).toMatchObject([{ lease_id: call!.lease_id }]);
  });

  test("is woken by a new call and by the end of a session", async () => {
    const { id, lease } = await serving();
    const first = poll({ wait_s: 20 });
    await newCall(store.db, id);
    deps.notifier.notify(`agent:${agent.id}`);
    expect((await first).jobs).toHaveLength(1);
    const second = poll({ wait_s: 20 });
    now += 1e6;
    await sweepSessions(deps);
    expect((await second).lost).toContain(lease);
  });

  test("keeps its sessions by listing them, and loses those it does not list", async () => {
    const { id, lease } = await serving();
    now += 60_000;
    await poll();
    now += 60_000;
    expect((await poll()).lost).toEqual([]);
    agent.heldSessions.delete(lease);
    now += 100_000;
    await sweepSessions(deps);
    expect(await findSession(store.db, id)).toMatchObject({ reason: "agent_lost" });
  });
});

describe("a post of a session", () => {
  test("can be repeated", async () => {
    const { lease } = await serving();
    expect((await postSession(lease, "ready", readyReport)).status).toBe(200);
    const error = { type: "oom", message: "too much", phase: "execution" };
    const end = { reason: "out_of_memory", error };
    expect((await postSession(lease, "ended", end)).status).toBe(200);
    expect((await postSession(lease, "ended", end)).status).toBe(200);
    expect((await postSession(lease, "ended", { ...end, reason: "engine_lost" })).status).toBe(409);
  });

  test("that its sandbox died leaves the call that ran to its own report, and cancels those that wait", async () => {
    const { id, lease } = await serving();
    const [running, waiting] = [await newCall(store.db, id), await newCall(store.db, id)];
    const [call] = (await poll()).jobs;
    const error = { type: "internal_error", message: "gone", phase: "execution" };
    await postSession(lease, "ended", { reason: "engine_lost", error });
    expect(await findExecution(store.db, waiting)).toMatchObject({ status: "cancelled" });
    await post(`/leases/${call!.lease_id}/release`, { error });
    expect(await findExecution(store.db, running)).toMatchObject({ status: "failed", error });
  });

  test("is 409 once the session has ended, and 403 from another agent's token", async () => {
    const { id, lease } = await serving();
    await store.db.client.execute("update agents set token_hash = 'other'");
    expect((await postSession(lease, "ready", readyReport)).status).toBe(403);
    await store.db.client.execute("delete from agents");
    const release = {
      error: { type: "docker_error", message: "gone", phase: "startup" },
    };
    expect((await postSession(lease, "release", release)).status).toBe(409);
    expect(await findSession(store.db, id)).toMatchObject({ status: "ready" });
    expect((await postSession(crypto.randomUUID(), "ready", readyReport)).status).toBe(409);
  });
});

describe("the sessions of an agent", () => {
  test.each([
    [false, "agent_stopped", "cancelled"],
    [true, "agent_lost", "failed"],
  ])("that has ended (crashed: %s) end as %s", async (crashed, reason, status) => {
    const { id } = await serving();
    const [running, waiting] = [await newCall(store.db, id), await newCall(store.db, id)];
    await poll();
    await post("/leave", { agent_id: agent.id, crashed });
    expect(await findSession(store.db, id)).toMatchObject({ status: "ended", reason });
    expect(await findExecution(store.db, running)).toMatchObject({ status });
    expect(await findExecution(store.db, waiting)).toMatchObject({ status: "cancelled" });
  });

  test("that has left wait for another agent if they were not ready", async () => {
    const { id } = await newSession();
    await poll();
    await post("/leave", { agent_id: agent.id, crashed: false });
    expect(await findSession(store.db, id)).toMatchObject({ status: "queued", attempt: 0 });
  });
});
