import { expect } from "vitest";
import { ExecutionPage, ExecutionRecord, SyncResult } from "../../../shared/wire/execution.ts";
import { WebhookEventPage } from "../../../shared/wire/client/webhook.ts";
import { SubmittedJob } from "../../../shared/wire/client/submission.ts";
import type { Reply } from "../scripted-agent.ts";
import { type Api, body, expectFault, problemOf } from "./api.ts";
import { each, on } from "./row.ts";
import { end, queuedSession, served } from "./serving.ts";

async function submitCall(api: Api, id: string, fields: object = {}): Promise<SubmittedJob> {
  const reply = await api.post(`/sessions/${id}/execute/async`, { code: "1", ...fields });
  expect(reply.status).toBe(202);
  return SubmittedJob.parse(body(reply));
}

const resultOf = (reply: Reply): SyncResult => SyncResult.parse(body(reply));

const wrongCalls: [object, string][] = [
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
  {
    rule: "POST /sessions/{id}/execute runs a call on the agent that holds the session, without a free slot, and answers with its result",
    async check(api) {
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
      const item = {
        number: 1,
        main: true,
        data: { "text/plain": "1" },
        stdout_at: 0,
        stderr_at: 0,
      };
      await agent.result(call.lease_id, { stdout_base64: btoa("out"), items: [item] });
      const reply = await answer;
      expect(reply.status).toBe(200);
      expect(resultOf(reply)).toMatchObject({ success: true, stdout: "out", results: [item] });
      const record = await api.record(call.execution_id);
      expect(record).toMatchObject({
        session_id: id,
        call: 1,
        context: "default",
        max_attempts: 1,
      });
    },
  },
  {
    rule: "Calls of a session run one at a time, in order; the result of one brings the next, and they wait for the session to be ready",
    async check(api) {
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
    },
  },
  {
    rule: "POST /sessions/{id}/execute with Accept: text/event-stream brings the events of the call, up to its end",
    async check(api) {
      const { id, agent } = await served(api);
      const headers = { Accept: "text/event-stream" };
      const answer = api.post(`/sessions/${id}/execute`, { code: "1" }, headers);
      const call = await agent.takeCall();
      await agent.result(call.lease_id, { stdout_base64: btoa("said") });
      const { text } = await answer;
      expect(text).toContain("event: stdout");
      expect(text).toContain("event: end");
      expect(text).toContain(`"session_id":"${id}"`);
    },
  },
  {
    rule: "A call that fails leaves its session ready; its record says why",
    async check(api) {
      const { id, agent } = await served(api);
      const answer = api.post(`/sessions/${id}/execute`, { code: "1" });
      const { lease_id } = await agent.takeCall();
      const error = { type: "interpreter_ended", message: "gone", phase: "execution" } as const;
      await agent.result(lease_id, { status: "failed", exit_code: null, error });
      expect(resultOf(await answer)).toMatchObject({ success: false, error });
      const next = await submitCall(api, id);
      expect((await agent.takeCall()).execution_id).toBe(next.job_id);
    },
  },
  {
    rule: "The event of a call that ends says whose session it was",
    async check(api) {
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
    },
  },
  {
    rule: "POST /sessions/{id}/interrupt cancels the call that runs and no other; without one it does nothing",
    async check(api) {
      const { id, agent } = await served(api);
      const interrupt = async () => body(await api.post(`/sessions/${id}/interrupt`));
      expect(await interrupt()).toEqual({ job_id: null });
      const [a, b] = [await submitCall(api, id), await submitCall(api, id)];
      const { lease_id } = await agent.takeCall();
      expect(await interrupt()).toEqual({ job_id: a.job_id });
      expect((await agent.poll()).cancel).toEqual([lease_id]);
      expect((await api.job(b.job_id)).status).toBe("queued");
    },
  },
  {
    rule: "POST /sessions/{id}/interrupt as a call ends names the call or none, and no other call is interrupted",
    async check(api) {
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
    },
  },
  {
    rule: "POST /sessions/{id}/restart is a call without code that starts the interpreter anew",
    async check(api) {
      const { id, agent } = await served(api);
      const answer = api.post(`/sessions/${id}/restart`);
      const call = await agent.takeCall();
      expect(call).toMatchObject({ code: "", call: { restart: true, context: "default" } });
      await agent.result(call.lease_id);
      expect(resultOf(await answer)).toMatchObject({ success: true });
    },
  },
  {
    rule: "A command runs in place of code",
    async check(api) {
      const { id, agent } = await served(api);
      await submitCall(api, id, { code: undefined, command: ["ls", "-l"] });
      const call = await agent.takeCall();
      expect(call).toMatchObject({ code: "", program: { run: ["ls", "-l"], compile: [] } });
      expect(call.results).toBeUndefined();
    },
  },
  {
    rule: "Contexts are interpreters that calls choose: 8 at most; each but default can be removed when no call needs it",
    async check(api) {
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
    },
  },
  {
    rule: "The end of a session cancels its calls: at once those that wait, and the one that runs keeps its output",
    async check(api) {
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
    },
  },
  {
    rule: "A call with an idempotency key runs once; with another payload, or in another session, it is 409",
    async check(api) {
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
    },
  },
  {
    rule: "GET /executions?session_id= lists the calls of a session; rerun and fork of one are 409",
    async check(api) {
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
    },
  },
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
  ...each(
    wrongCalls,
    ([fields]) => `A call with ${JSON.stringify(fields)} is 400 at that field`,
    async (api, [fields, path]) => {
      const id = await queuedSession(api);
      expectFault(await api.post(`/sessions/${id}/execute/async`, fields), path);
    },
  ),
]);
