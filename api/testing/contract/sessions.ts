import { expect } from "vitest";
import { waitUntil } from "../../../shared/testing/test-file.ts";
import {
  ExecutionPage,
  ExecutionRecord,
  SyncResult,
  ToolCalls,
} from "../../../shared/wire/executions.ts";
import { limits } from "../../../shared/wire/limits.ts";
import { type Session, SessionPage } from "../../../shared/wire/sessions.ts";
import { SubmittedJob } from "../../../shared/wire/submissions.ts";
import { WebhookEventPage } from "../../../shared/wire/webhooks.ts";
import { Follower } from "../follower.ts";
import { readyReport, type Reply } from "../scripted-agent.ts";
import {
  type Api,
  body,
  end,
  expectFault,
  holder,
  maxSessions,
  on,
  problemOf,
  queuedSession,
  readSession,
  served,
  sessionOf,
  test,
} from "./api.ts";
import { answers, asked, toolCall } from "./tools.ts";

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
  test("POST /sessions answers 201 with the session once an agent has started it, and gives the agent what it needs", async (api) => {
    const asked = { env: { A: "b" }, metadata: { team: "ml" }, lifetime: 100, idle_timeout: null };
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
  }),
  test("POST /sessions without an agent that takes sessions is 202 and says why it waits; GET /sessions/{id}?wait answers when it is ready", async (api) => {
    await api.agent().poll();
    const reply = await api.post("/sessions", { wait: 0.1 });
    expect(reply.status).toBe(202);
    const { session_id: id, status, message } = sessionOf(reply);
    expect([status, message]).toEqual(["queued", "No connected agent takes sessions."]);
    const waiting = api.get(`/sessions/${id}?wait=60`);
    await holder(api).startSession();
    expect(sessionOf(await waiting)).toMatchObject({ session_id: id, status: "ready" });
  }),
  test("A session that its agent gives back before it was ready goes to another one, and fails the second time", async (api) => {
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
  }),
  test("POST /sessions with a wrong field is 400 at that field", async (api) => {
    for (const [fields, path] of wrongFields)
      expectFault(await api.post("/sessions", fields), path);
  }),
  test("A lifetime above max_session_lifetime is 422, of a new session and of one that is there", async (api) => {
    const tooLong = { lifetime: 86_401 };
    const created = await api.post("/sessions", tooLong);
    expect(created.status).toBe(422);
    expect(problemOf(created).errors).toMatchObject([{ path: "lifetime" }]);
    const id = await queuedSession(api);
    expect((await api.sendJson("PATCH", `/sessions/${id}`, tooLong)).status).toBe(422);
  }),
  test("PATCH /sessions/{id} sets the lifetime from now on, idle_timeout and metadata; fields that are left out stay", async (api) => {
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
  }),
  test("DELETE /sessions/{id} ends a session, and may be repeated; its agent loses the lease, and its record stays", async (api) => {
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
  }),
  test("A session ends after its idle_timeout without a call, and at the end of its lifetime", async (api) => {
    const { id, agent } = await served(api, { idle_timeout: 1 });
    const short = await queuedSession(api, { lifetime: 1 });
    expect(await untilEnded(api, short)).toMatchObject({ reason: "lifetime" });
    expect(await untilEnded(api, id)).toMatchObject({ reason: "idle", error: null });
    expect((await agent.poll()).lost).toHaveLength(1);
  }),
  test("A session ends as agent_stopped when its agent leaves, and for the agent's reason when its sandbox is gone", async (api) => {
    const first = await served(api);
    await first.agent.leave();
    expect(await readSession(api, first.id)).toMatchObject({ reason: "agent_stopped" });
    const { id, agent, leaseId } = await served(api);
    const error = { type: "oom", message: "too much memory", phase: "execution" };
    const report = { reason: "out_of_memory", error };
    for (const _ of ["once", "again"])
      expect((await agent.postSession(leaseId, "ended", report)).status).toBe(200);
    expect(await readSession(api, id)).toMatchObject({ reason: "out_of_memory", error });
  }),
  test("POST /sessions with an idempotency key makes one session; with another payload it is 409", async (api) => {
    const key = { "Idempotency-Key": crypto.randomUUID() };
    const make = (fields: object) => api.post("/sessions", { wait: 0, ...fields }, key);
    const { session_id: id } = sessionOf(await make({}));
    expect(sessionOf(await make({ wait: 0.1 })).session_id).toBe(id);
    const other = await make({ lifetime: 5 });
    expect([other.status, problemOf(other).code]).toEqual([409, "conflict"]);
    await end(api, id);
    expect(problemOf(await make({})).code).toBe("session_ended");
  }),
  test("A tenant with max_sessions_per_tenant sessions gets no more: 429 too_many_sessions, until one has ended", async (api) => {
    const ids = await Promise.all(Array.from({ length: maxSessions }, () => queuedSession(api)));
    const refused = await api.post("/sessions", { wait: 0 });
    expect(refused.status).toBe(429);
    expect(problemOf(refused).code).toBe("too_many_sessions");
    expect(refused.headers.get("Retry-After")).not.toBeNull();
    await end(api, ids.pop()!);
    ids.push(await queuedSession(api));
  }),
  test("GET /sessions lists the newest first, by status and in pages", async (api) => {
    const [a, b] = [await queuedSession(api), await queuedSession(api)];
    const ids = async (query: string) => {
      const page = SessionPage.parse(body(await api.get(`/sessions?${query}`)));
      return [page.items.map((one) => one.session_id), page.has_more];
    };
    expect(await ids("status=queued")).toEqual([[b, a], false]);
    expect(await ids("status=queued&limit=1")).toEqual([[b], true]);
    expect(await ids(`limit=1&before=${b}`)).toMatchObject([[a], expect.anything()]);
  }),
  test("A session id that names nothing is 404", async (api) => {
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
  }),
]);

async function submitCall(api: Api, id: string, fields: object = {}): Promise<SubmittedJob> {
  const reply = await api.post(`/sessions/${id}/execute/async`, { code: "1", ...fields });
  expect(reply.status).toBe(202);
  return SubmittedJob.parse(body(reply));
}

const resultOf = (reply: Reply): SyncResult => SyncResult.parse(body(reply));

const wrongCalls: [object, string][] = [
  [{ code: "x", tools: [{ name: "class" }] }, "tools.0.name"],
  [{ command: ["ls"], ...asked }, "tools"],
  [{ restart: true, ...asked }, "tools"],
  [{ code: "x", tool_timeout: 5 }, "tool_timeout"],
  [{}, "code"],
  [{ code: "" }, "code"],
  [{ code: "1", command: ["ls"] }, "command"],
  [{ fetch: ["../a"] }, "fetch.0"],
  [{ fetch: ["/proc/1/environ"] }, "fetch.0"],
  [{ code: "1", files: [{ name: "_code.py", to: "work", text: "" }] }, "files.0.name"],
  [{ code: "1", env: { "": "a" } }, "env."],
  [{ code: "1", job_type: "ml" }, "job_type"],
  [{ code: "1", timeout: "1" }, "timeout"],
];

export const sessionCallRows = on("with sessions", [
  test("POST /sessions/{id}/execute runs a call on the agent that holds the session, without a free slot, and answers with its result", async (api) => {
    const { id, agent, leaseId } = await served(api);
    const asked = {
      code: "x = 1\nx",
      env: { A: "b" },
      stdin: "in",
      fetch: ["out.csv"],
      files: [
        { name: "a.txt", text: "read" },
        { name: "b.txt", text: "write", to: "work" },
      ],
    };
    const answer = api.post(`/sessions/${id}/execute`, asked);
    const call = await agent.takeCall();
    expect(call).toMatchObject({
      code: "x = 1\nx",
      results: true,
      stdin: "in",
      requirements: [],
      timeout_s: 30,
      files: [{ name: "a.txt" }, { name: "b.txt", to: "work" }],
      call: {
        session_lease_id: leaseId,
        number: 1,
        context: "default",
        contexts: [],
        restart: false,
        env: { A: "b" },
        fetch: ["out.csv"],
      },
    });
    expect(call.files![0]).not.toHaveProperty("to");
    const item = { number: 1, main: true, data: { "text/plain": "1" }, stdout_at: 0, stderr_at: 0 };
    await agent.result(call.lease_id, { stdout_base64: btoa("out"), items: [item] });
    const reply = await answer;
    expect(reply.status).toBe(200);
    expect(resultOf(reply)).toMatchObject({ success: true, stdout: "out", results: [item] });
    const record = await api.record(call.execution_id);
    expect(record).toMatchObject({ session_id: id, call: 1, context: "default", max_attempts: 1 });
  }),
  test("Calls of a session run one at a time, in order; the result of one brings the next, and they wait for the session to be ready", async (api) => {
    const id = await queuedSession(api);
    const [a, b] = [await submitCall(api, id), await submitCall(api, id)];
    expect([a.queue_position, b.queue_position]).toEqual([1, 2]);
    expect((await api.job(a.job_id)).message).toContain("which is queued");
    const agent = api.agent();
    agent.maxSessions = 1;
    expect((await agent.startSession()).session_id).toBe(id);
    const first = await agent.takeCall();
    expect(first.execution_id).toBe(a.job_id);
    expect((await agent.poll()).jobs).toEqual([]);
    expect((await api.job(b.job_id)).message).toContain("at position 1");
    const { jobs } = await agent.resultAndTake(first.lease_id);
    expect(jobs).toMatchObject([{ execution_id: b.job_id, call: { number: 2 } }]);
  }),
  test("POST /sessions/{id}/execute with Accept: text/event-stream brings the events of the call, up to its end", async (api) => {
    const { id, agent } = await served(api);
    const headers = { Accept: "text/event-stream" };
    const answer = api.post(`/sessions/${id}/execute`, { code: "1" }, headers);
    const call = await agent.takeCall();
    await agent.result(call.lease_id, { stdout_base64: btoa("said") });
    const { text } = await answer;
    expect(text).toContain("event: stdout");
    expect(text).toContain("event: end");
    expect(text).toContain(`"session_id":"${id}"`);
  }),
  test("A call that fails leaves its session ready; its record says why", async (api) => {
    const { id, agent } = await served(api);
    const answer = api.post(`/sessions/${id}/execute`, { code: "1" });
    const { lease_id } = await agent.takeCall();
    const error = { type: "interpreter_ended", message: "gone", phase: "execution" } as const;
    await agent.result(lease_id, { status: "failed", exit_code: null, error });
    expect(resultOf(await answer)).toMatchObject({ success: false, error });
    const next = await submitCall(api, id);
    expect((await agent.takeCall()).execution_id).toBe(next.job_id);
  }),
  test("The event of a call that ends says whose session it was", async (api) => {
    const { id, agent } = await served(api);
    const { cursor } = WebhookEventPage.parse(body(await api.get("/webhooks/events")));
    const { job_id } = await submitCall(api, id);
    await agent.result((await agent.takeCall()).lease_id, {});
    const { items } = WebhookEventPage.parse(
      body(await api.get(`/webhooks/events?after=${cursor}`)),
    );
    const own = items.filter(({ event }) => event.data.job_id === job_id);
    expect(own).toMatchObject([
      { event: { type: "execution.succeeded", data: { session_id: id } } },
    ]);
    await end(api, id);
  }),
  test("POST /sessions/{id}/interrupt cancels the call that runs and no other; without one it does nothing", async (api) => {
    const { id, agent } = await served(api);
    const interrupt = async () => body(await api.post(`/sessions/${id}/interrupt`));
    expect(await interrupt()).toEqual({ job_id: null });
    const [a, b] = [await submitCall(api, id), await submitCall(api, id)];
    const { lease_id } = await agent.takeCall();
    expect(await interrupt()).toEqual({ job_id: a.job_id });
    expect((await agent.poll()).cancel).toEqual([lease_id]);
    expect((await api.job(b.job_id)).status).toBe("queued");
  }),
  test("POST /sessions/{id}/interrupt as a call ends names the call or none, and no other call is interrupted", async (api) => {
    const { id, agent } = await served(api);
    for (let n = 0; n < 30; n++) {
      const { job_id } = await submitCall(api, id);
      const { lease_id } = await agent.takeCall();
      const [reply] = await Promise.all([
        api.post(`/sessions/${id}/interrupt`),
        agent.result(lease_id, {}),
      ]);
      expect(reply.status).toBe(200);
      expect([job_id, null]).toContain((body(reply) as { job_id: unknown }).job_id);
    }
  }),
  test("POST /sessions/{id}/restart is a call without code that starts the interpreter anew", async (api) => {
    const { id, agent } = await served(api);
    const answer = api.post(`/sessions/${id}/restart`);
    const call = await agent.takeCall();
    expect(call).toMatchObject({ code: "", call: { restart: true, context: "default" } });
    await agent.result(call.lease_id);
    expect(resultOf(await answer)).toMatchObject({ success: true });
  }),
  test("A command runs in place of code", async (api) => {
    const { id, agent } = await served(api);
    await submitCall(api, id, { code: undefined, command: ["ls", "-l"] });
    const call = await agent.takeCall();
    expect(call).toMatchObject({ code: "", program: { run: ["ls", "-l"], compile: [] } });
    expect(call.results).toBeUndefined();
  }),
  test("Contexts are interpreters that calls choose: 8 at most; each but default can be removed when no call needs it", async (api) => {
    const { id, agent } = await served(api);
    const path = `/sessions/${id}/contexts`;
    const make = () => api.post(path);
    const { context_id: made } = body(await make()) as { context_id: string };
    const remove = (context: string) => api.send("DELETE", `${path}/${context}`);
    await submitCall(api, id, { context: made });
    expect((await remove(made)).status).toBe(409);
    const { lease_id, call } = await agent.takeCall();
    expect(call).toMatchObject({ context: made, contexts: [made] });
    expect((await remove(made)).status).toBe(409);
    await agent.result(lease_id);
    const removals = await Promise.all([remove(made), remove(made)]);
    expect(removals.map(({ status }) => status)).toEqual(expect.arrayContaining([204, 404]));
    expect((await remove(made)).status).toBe(404);
    expect((await remove("default")).status).toBe(409);
    const gone = await api.post(`/sessions/${id}/execute`, { code: "1", context: made });
    expect([gone.status, problemOf(gone).code]).toEqual([404, "not_found"]);
    for (let n = 1; n < 8; n++) expect((await make()).status).toBe(201);
    expect((await make()).status).toBe(409);
    const { items } = body(await api.get(path)) as { items: unknown[] };
    expect(items).toHaveLength(8);
    expect(items[0]).toEqual({ context_id: "default" });
  }),
  test("The end of a session cancels its calls: at once those that wait, and the one that runs keeps its output", async (api) => {
    const { id, agent } = await served(api);
    const [a, b] = [await submitCall(api, id), await submitCall(api, id)];
    const { lease_id } = await agent.takeCall();
    const waiting = api.get(`/jobs/${b.job_id}/result?wait=true&timeout=60`);
    await end(api, id);
    expect(ExecutionRecord.parse(body(await waiting))).toMatchObject({
      status: "cancelled",
      error: { message: "The session ended: deleted." },
    });
    expect((await agent.poll()).cancel).toEqual([lease_id]);
    const error = { type: "cancelled", message: "Cancelled.", phase: "execution" } as const;
    const stdout_base64 = btoa("so far");
    await agent.result(lease_id, { status: "cancelled", exit_code: null, error, stdout_base64 });
    expect(await api.record(a.job_id)).toMatchObject({ status: "cancelled", stdout: "so far" });
  }),
  test("A call with an idempotency key runs once; with another payload, or in another session, it is 409", async (api) => {
    const [one, other] = [await queuedSession(api), await queuedSession(api)];
    const key = { idempotency_key: crypto.randomUUID() };
    const first = await submitCall(api, one, key);
    expect((await submitCall(api, one, key)).job_id).toBe(first.job_id);
    for (const [id, code] of [
      [one, "2"],
      [other, "1"],
    ]) {
      const refused = await api.post(`/sessions/${id}/execute/async`, { code, ...key });
      expect(refused.status).toBe(409);
      expect(problemOf(refused).existing_job_id).toBe(first.job_id);
    }
  }),
  test("GET /executions?session_id= lists the calls of a session; rerun and fork of one are 409", async (api) => {
    const id = await queuedSession(api);
    const ids = [(await submitCall(api, id)).job_id, (await submitCall(api, id)).job_id];
    const page = ExecutionPage.parse(body(await api.get(`/executions?session_id=${id}`)));
    expect(page.items.map((one) => [one.execution_id, one.call])).toEqual([
      [ids[1], 2],
      [ids[0], 1],
    ]);
    for (const what of ["rerun", "fork"]) {
      const refused = await api.post(
        `/jobs/${ids[0]}/${what}`,
        what === "fork" ? { code: "1" } : {},
      );
      expect([refused.status, problemOf(refused).session_id]).toEqual([409, id]);
    }
  }),
  {
    rule: "A synchronous call whose client hangs up is cancelled; the session goes on",
    async check(api) {
      const { id, agent } = await served(api);
      const gone = new AbortController();
      const headers = { "Content-Type": "application/json" };
      const answer = api.send("POST", `/sessions/${id}/execute`, {
        headers,
        body: '{"code":"1"}',
        signal: gone.signal,
      });
      const { lease_id } = await agent.takeCall();
      const polled = agent.poll({ wait_s: 30 });
      gone.abort();
      await expect(answer).rejects.toThrow(/abort/i);
      expect((await polled).cancel).toEqual([lease_id]);
    },
    only: { on: "node", why: "wrangler's proxy does not pass on that a client hangs up" },
  },
  test("A call with a wrong field is 400 at that field", async (api) => {
    const id = await queuedSession(api);
    for (const [fields, path] of wrongCalls)
      expectFault(await api.post(`/sessions/${id}/execute/async`, fields), path);
  }),
]);

const octets = { "Content-Type": "application/octet-stream" };

export const sessionFileRows = on("with sessions", [
  test("PUT /sessions/{id}/files/{path} is a call that writes the file; lists leave it out unless they ask for it", async (api) => {
    const { id, agent } = await served(api);
    const path = `/sessions/${id}/files/tables/a.csv`;
    const answer = api.send("PUT", path, { headers: octets, body: "a,b\n" });
    const call = await agent.takeCall();
    expect(call).toMatchObject({
      code: "",
      files: [{ name: "tables/a.csv", size_bytes: 4, to: "work" }],
      call: { fetch: [] },
    });
    const { sha256 } = call.files![0]!;
    expect((await agent.get(`/leases/${call.lease_id}/files/${sha256}`)).text).toBe("a,b\n");
    await agent.result(call.lease_id);
    expect((await answer).status).toBe(204);
    const count = async (query: string) =>
      ExecutionPage.parse(body(await api.get(`/executions?session_id=${id}${query}`))).count;
    expect([await count(""), await count("&kind=files"), await count("&kind=all")]).toEqual([
      0, 1, 1,
    ]);
  }),
  test("GET and HEAD /sessions/{id}/files/{path} bring the file that a call fetches; one that is not there is 404", async (api) => {
    const { id, agent } = await served(api);
    const path = `/sessions/${id}/files/tables/a.csv`;
    for (const method of ["GET", "HEAD"]) {
      const answer = api.send(method, path);
      const call = await agent.takeCall();
      expect(call).toMatchObject({ code: "", call: { fetch: ["tables/a.csv"] } });
      await agent.upload(call.lease_id, "_fetched/tables/a.csv", "a,b\n");
      await agent.result(call.lease_id);
      const reply = await answer;
      expect([reply.status, reply.text]).toEqual([200, method === "GET" ? "a,b\n" : ""]);
      expect(reply.headers.get("Content-Type")).toMatch(/^text\/csv/);
      expect(reply.headers.get("Content-Length")).toBe("4");
    }
    const answer = api.get(path);
    const { lease_id } = await agent.takeCall();
    await agent.result(lease_id, { warnings: ["tables/a.csv was left out: it is a link."] });
    const missing = await answer;
    expect(missing.status).toBe(404);
    expect(problemOf(missing).detail).toContain("it is a link");
  }),
  test("GET /sessions/{id}/files lists a folder by a program of the image; its output is checked", async (api) => {
    const { id, agent } = await served(api);
    const list = async (stdout: string, exit_code = 0) => {
      const answer = api.get(`/sessions/${id}/files?path=tables`);
      const { lease_id, program, call } = await agent.takeCall();
      expect(program!.run).toMatchObject(["python3", "-I", "-c", expect.anything(), "tables"]);
      expect(call).toMatchObject({ only_fetches: true });
      const error = { type: "runtime_error", message: "exit", phase: "execution" } as const;
      const failed = { status: "failed", exit_code, error } as const;
      await agent.result(lease_id, { stdout_base64: btoa(stdout), ...(exit_code !== 0 && failed) });
      return answer;
    };
    const found = await list('[["a.csv","file",4,1000],["b","folder",0,2000]]');
    expect(body(found)).toEqual({
      path: "tables",
      items: [
        {
          path: "tables/a.csv",
          type: "file",
          size_bytes: 4,
          modified_at: "1970-01-01T00:00:01.000Z",
        },
        {
          path: "tables/b",
          type: "folder",
          size_bytes: 0,
          modified_at: "1970-01-01T00:00:02.000Z",
        },
      ],
    });
    expect((await list("", 44)).status).toBe(404);
    expect((await list('[["a.csv","file",-4,1e300]]')).status).toBe(409);
    expect((await list("nonsense")).status).toBe(409);
  }),
  test("DELETE /sessions/{id}/files/{path} removes by a program of the image; what it says comes back", async (api) => {
    const { id, agent } = await served(api);
    const remove = async (exit_code: number) => {
      const answer = api.send("DELETE", `/sessions/${id}/files/a`);
      const { lease_id, program } = await agent.takeCall();
      expect(program!.run.at(-1)).toBe("a");
      const error = { type: "os_error", message: "busy", phase: "execution" } as const;
      await agent.result(lease_id, exit_code === 0 ? {} : { status: "failed", exit_code, error });
      return answer;
    };
    expect((await remove(0)).status).toBe(204);
    expect((await remove(44)).status).toBe(404);
    const refused = await remove(1);
    expect([refused.status, problemOf(refused).detail]).toEqual([409, "a: busy"]);
  }),
  test("A path of a session's file must stay below /output", async (api) => {
    const { id } = await served(api);
    const files = `/sessions/${id}/files`;
    expectFault(await api.get(`${files}?path=..`), "path");
    expectFault(await api.get(`${files}/a%2F..%2Fb`), "path");
    expectFault(await api.send("DELETE", `${files}/_code.py`), "path");
    const put = await api.send("PUT", `${files}/a%5Cb`, { headers: octets, body: "a" });
    expectFault(put, "path");
  }),
]);

export const sessionToolRows = on("with sessions", [
  test("POST /sessions/{id}/execute with `tools` brings events, among them the tool calls, whose answers reach the agent; without events it is 400", async (api) => {
    const { id, agent } = await served(api);
    const path = `/sessions/${id}/execute`;
    const request = { code: "x", ...asked };
    const unseen = await api.post(path, request);
    expectFault(unseen, "tools");
    expect(problemOf(unseen).detail).toContain(`${path}/async`);
    const headers = { Accept: "text/event-stream" };
    await using live = await Follower.open(api.url, path, headers, request);
    const { lease_id, ...call } = await agent.takeCall();
    const tools = { functions: asked.tools, timeout_s: limits.toolTimeoutDefaultS };
    expect(call).toMatchObject({ results: true, tools, call: { number: 1 } });
    await agent.post(lease_id, "items", { items: [toolCall(1)] });
    const { data } = await live.until(({ event }) => event === "tool_call");
    expect(data).toMatchObject({ job_id: call.execution_id, ...toolCall(1) });
    const given = { result: 380 };
    expect((await api.post(`/jobs/${data.job_id}/tool-calls/1`, given)).status).toBe(200);
    expect(await answers(agent, lease_id, 0, 20)).toEqual([{ number: 1, result_json: "380" }]);
    await agent.result(lease_id);
    expect((await live.rest()).at(-1)).toMatchObject({ event: "end" });
  }),
  test("A call of a session has its own `tools` and tool calls: the next one has none of them, and an answer that comes then is 409", async (api) => {
    const { id, agent } = await served(api);
    const { job_id: first } = await submitCall(api, id, { ...asked, tool_timeout: 7 });
    const { job_id: second } = await submitCall(api, id);
    expect(await api.record(first)).toMatchObject({ ...asked, tool_timeout: 7 });
    const { lease_id } = await agent.takeCall();
    await agent.post(lease_id, "items", { items: [toolCall(1)] });
    const calls = async (job: string) =>
      ToolCalls.parse(body(await api.get(`/jobs/${job}/tool-calls`))).calls;
    expect(await calls(first)).toEqual([toolCall(1)]);
    const { jobs } = await agent.resultAndTake(lease_id);
    expect(jobs[0]).toMatchObject({ execution_id: second });
    expect(jobs[0]).not.toHaveProperty("tools");
    expect(await calls(second)).toEqual([]);
    const answer = (job: string) => api.post(`/jobs/${job}/tool-calls/1`, { result: 1 });
    expect([(await answer(first)).status, (await answer(second)).status]).toEqual([409, 404]);
  }),
]);
