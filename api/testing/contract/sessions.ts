import { expect } from "vitest";
import { waitUntil } from "../../../shared/testing/wait-until.ts";
import { type Session, SessionPage } from "../../../shared/wire/client/session.ts";
import { readyReport } from "../scripted-agent.ts";
import { type Api, body, expectFault, problemOf } from "./api.ts";
import { each, on } from "./row.ts";
import { end, holder, queuedSession, readSession, served, sessionOf } from "./serving.ts";
import { maxSessions } from "./servers.ts";

/** The end of a session, as a call of it is told. */
async function whyEnded(api: Api, id: string): Promise<string | undefined> {
  const refused = await api.post(`/sessions/${id}/execute`, { code: "1" });
  expect(refused.status).toBe(409);
  const problem = problemOf(refused);
  expect(problem).toMatchObject({ code: "session_ended", session_id: id });
  return problem.reason;
}

async function untilEnded(api: Api, id: string): Promise<Session> {
  let session = await readSession(api, id);
  await waitUntil("the end of the session", async () => {
    session = await readSession(api, id);
    return session.status === "ended";
  });
  return session;
}

const wrongFields: [object, string][] = [
  [{ job_type: "missing" }, "job_type"],
  [{ idle_timeout: 0 }, "idle_timeout"],
  [{ lifetime: "1" }, "lifetime"],
  [{ env: { "a-b": "c" } }, "env.a-b"],
  [{ wait: -1 }, "wait"],
  [{ files: [] }, "files"],
];

export const sessionRows = on("with sessions", [
  {
    rule: "POST /sessions answers 201 with the session once an agent has started it, and gives the agent what it needs",
    async check(api) {
      const asked = {
        env: { A: "b" },
        metadata: { team: "ml" },
        lifetime: 100,
        idle_timeout: null,
      };
      const answer = api.post("/sessions", asked);
      const agent = holder(api);
      const leased = await agent.takeSession();
      expect(leased).toMatchObject({
        attempt: 1,
        tenant: "default",
        job_type: { name: "default" },
        image: "python:3.13-slim",
        requirements: [],
        env: { A: "b" },
        startup_timeout_s: 60,
      });
      await agent.postSession(leased.lease_id, "ready", readyReport);
      const reply = await answer;
      expect(reply.status).toBe(201);
      const session = sessionOf(reply);
      expect(reply.headers.get("Location")).toBe(`/sessions/${session.session_id}`);
      expect(session).toMatchObject({
        session_id: leased.session_id,
        status: "ready",
        busy: false,
        contexts: ["default"],
        calls: 0,
        idle_timeout: null,
        metadata: { team: "ml" },
        python_version: "3.13.2",
        container_backend: "zygote",
        reason: null,
        error: null,
      });
      const lived = Date.parse(session.expires_at) - Date.parse(session.created_at);
      expect(lived).toBe(100_000);
    },
  },
  {
    rule: "POST /sessions without an agent that takes sessions is 202 and says why it waits; GET /sessions/{id}?wait answers when it is ready",
    async check(api) {
      await api.agent().poll();
      const reply = await api.post("/sessions", { wait: 0.1 });
      expect(reply.status).toBe(202);
      const { session_id: id, status, message } = sessionOf(reply);
      expect([status, message]).toEqual(["queued", "No connected agent takes sessions."]);
      const waiting = api.get(`/sessions/${id}?wait=60`);
      await holder(api).startSession();
      expect(sessionOf(await waiting)).toMatchObject({ session_id: id, status: "ready" });
    },
  },
  {
    rule: "A session that its agent gives back before it was ready goes to another one, and fails the second time",
    async check(api) {
      const id = await queuedSession(api);
      const error = { type: "docker_error", message: "no such image", phase: "startup" } as const;
      for (const status of ["queued", "ended"]) {
        const agent = holder(api);
        const { lease_id, session_id } = await agent.takeSession();
        expect(session_id).toBe(id);
        expect((await agent.postSession(lease_id, "release", { error })).status).toBe(200);
        expect((await readSession(api, id)).status).toBe(status);
        await agent.leave();
      }
      expect(await readSession(api, id)).toMatchObject({ reason: "start_failed", error });
      expect(await whyEnded(api, id)).toBe("start_failed");
    },
  },
  ...each(
    wrongFields,
    ([fields]) => `POST /sessions with ${JSON.stringify(fields)} is 400 at that field`,
    async (api, [fields, path]) => {
      expectFault(await api.post("/sessions", fields), path);
    },
  ),
  {
    rule: "A lifetime above max_session_lifetime is 422, of a new session and of one that is there",
    async check(api) {
      const tooLong = { lifetime: 86_401 };
      const created = await api.post("/sessions", tooLong);
      expect(created.status).toBe(422);
      expect(problemOf(created).errors).toMatchObject([{ path: "lifetime" }]);
      const id = await queuedSession(api);
      expect((await api.sendJson("PATCH", `/sessions/${id}`, tooLong)).status).toBe(422);
    },
  },
  {
    rule: "PATCH /sessions/{id} sets the lifetime from now on, idle_timeout and metadata; fields that are left out stay",
    async check(api) {
      const id = await queuedSession(api, { metadata: { a: "b" } });
      const patch = (fields: object) => api.sendJson("PATCH", `/sessions/${id}`, fields);
      const before = Date.now();
      const longer = sessionOf(await patch({ lifetime: 80_000 }));
      expect(Date.parse(longer.expires_at)).toBeGreaterThan(before + 79_000_000);
      expect(longer).toMatchObject({ idle_timeout: 600, metadata: { a: "b" } });
      const changed = sessionOf(await patch({ idle_timeout: null, metadata: { c: "d" } }));
      expect(changed).toMatchObject({ idle_timeout: null, metadata: { c: "d" } });
      expect(changed.expires_at).toBe(longer.expires_at);
      await end(api, id);
      expect(problemOf(await patch({ lifetime: 5 })).code).toBe("session_ended");
    },
  },
  {
    rule: "DELETE /sessions/{id} ends a session, and may be repeated; its agent loses the lease, and its record stays",
    async check(api) {
      const { id, agent, leaseId } = await served(api);
      const polled = agent.poll({ wait_s: 20 });
      await end(api, id);
      await end(api, id);
      expect((await polled).lost).toEqual([leaseId]);
      const error = { type: "internal_error", message: "gone", phase: "execution" };
      const late = await agent.postSession(leaseId, "ended", { reason: "engine_lost", error });
      expect(late.status).toBe(409);
      expect(await readSession(api, id)).toMatchObject({ status: "ended", reason: "deleted" });
      expect(await whyEnded(api, id)).toBe("deleted");
    },
  },
  {
    rule: "A session ends after its idle_timeout without a call, and at the end of its lifetime",
    async check(api) {
      const { id, agent } = await served(api, { idle_timeout: 1 });
      const short = await queuedSession(api, { lifetime: 1 });
      expect(await untilEnded(api, short)).toMatchObject({ reason: "lifetime" });
      expect(await untilEnded(api, id)).toMatchObject({ reason: "idle", error: null });
      expect((await agent.poll()).lost).toHaveLength(1);
    },
  },
  {
    rule: "A session ends as agent_stopped when its agent leaves, and for the agent's reason when its sandbox is gone",
    async check(api) {
      const first = await served(api);
      await first.agent.leave();
      expect(await readSession(api, first.id)).toMatchObject({ reason: "agent_stopped" });
      const { id, agent, leaseId } = await served(api);
      const error = { type: "oom", message: "too much memory", phase: "execution" };
      const report = { reason: "out_of_memory", error };
      for (const _ of ["once", "again"])
        expect((await agent.postSession(leaseId, "ended", report)).status).toBe(200);
      expect(await readSession(api, id)).toMatchObject({ reason: "out_of_memory", error });
    },
  },
  {
    rule: "POST /sessions with an idempotency key makes one session; with another payload it is 409",
    async check(api) {
      const key = { "Idempotency-Key": crypto.randomUUID() };
      const make = (fields: object) => api.post("/sessions", { wait: 0, ...fields }, key);
      const { session_id: id } = sessionOf(await make({}));
      expect(sessionOf(await make({ wait: 0.1 })).session_id).toBe(id);
      const other = await make({ lifetime: 5 });
      expect([other.status, problemOf(other).code]).toEqual([409, "conflict"]);
      await end(api, id);
      expect(problemOf(await make({})).code).toBe("session_ended");
    },
  },
  {
    rule: "A tenant with max_sessions_per_tenant sessions gets no more: 429 too_many_sessions, until one has ended",
    async check(api) {
      const ids = await Promise.all(Array.from({ length: maxSessions }, () => queuedSession(api)));
      const refused = await api.post("/sessions", { wait: 0 });
      expect(refused.status).toBe(429);
      expect(problemOf(refused).code).toBe("too_many_sessions");
      expect(refused.headers.get("Retry-After")).not.toBeNull();
      await end(api, ids.pop()!);
      ids.push(await queuedSession(api));
    },
  },
  {
    rule: "GET /sessions lists the newest first, by status and in pages",
    async check(api) {
      const [a, b] = [await queuedSession(api), await queuedSession(api)];
      const ids = async (query: string) => {
        const page = SessionPage.parse(body(await api.get(`/sessions?${query}`)));
        return [page.items.map((one) => one.session_id), page.has_more];
      };
      expect(await ids("status=queued")).toEqual([[b, a], false]);
      expect(await ids("status=queued&limit=1")).toEqual([[b], true]);
      expect(await ids(`limit=1&before=${b}`)).toMatchObject([[a], expect.anything()]);
      expectFault(await api.get("/sessions?status=busy"), "status");
    },
  },
  {
    rule: "A session id that names nothing is 404",
    async check(api) {
      const id = crypto.randomUUID();
      const requests: [method: string, path: string, body?: object][] = [
        ["GET", ""],
        ["PATCH", "", {}],
        ["DELETE", ""],
        ["POST", "/execute", { code: "1" }],
        ["POST", "/execute/async", { code: "1" }],
        ["POST", "/interrupt"],
        ["POST", "/restart", {}],
        ["POST", "/contexts"],
        ["GET", "/contexts"],
        ["DELETE", "/contexts/x"],
        ["GET", "/files"],
        ["GET", "/files/a"],
        ["DELETE", "/files/a"],
      ];
      for (const [method, path, fields] of requests) {
        const reply = await api.sendJson(method, `/sessions/${id}${path}`, fields);
        expect([method, path, reply.status]).toEqual([method, path, 404]);
      }
    },
  },
]);
