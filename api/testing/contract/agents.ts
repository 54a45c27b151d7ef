import { expect } from "vitest";
import type { Reply, ScriptedAgent } from "../scripted-agent.ts";
import type { Api } from "./api.ts";
import { each, type Row } from "./row.ts";
import { agentTokens } from "./servers.ts";

const dockerError = { type: "docker_error", message: "gone", phase: "startup" } as const;
const failure = { type: "value_error", message: "", phase: "execution" } as const;
const log = (offset: number, text: string) => ({
  stream: "stdout",
  offset,
  data_base64: btoa(text),
});

/** Every post about a lease, with a body and another one. */
const posts: [
  what: string,
  send: (agent: ScriptedAgent, lease: string, other?: boolean) => Promise<Reply>,
][] = [
  [
    "started",
    (agent, lease, other) => agent.post(lease, "started", { job_ref: other ? "b" : "a" }),
  ],
  ["logs", (agent, lease, other) => agent.post(lease, "logs", log(0, other ? "b" : "a"))],
  ["an upload", (agent, lease, other) => agent.upload(lease, "a.txt", other ? "b" : "a")],
  [
    "a result",
    (agent, lease, other) =>
      agent.result(lease, other ? { status: "failed", exit_code: 1, error: failure } : {}),
  ],
];
const release = (agent: ScriptedAgent, lease: string) =>
  agent.post(lease, "release", { error: dockerError });

/** An agent with a job of its own. */
async function working(api: Api) {
  const { job_id } = await api.submit();
  const agent = api.agent();
  const { lease_id } = await agent.takeJob();
  return { agent, job_id, lease_id };
}

export const agentRows: Row[] = [
  ...each(
    [
      "",
      "Bearer",
      "Bearer wrong-token-0123456789",
      `Basic ${btoa(agentTokens[0])}`,
      agentTokens[0],
    ],
    (given) => `An agent's request with Authorization "${given.slice(0, 12)}…" is 401`,
    async (api, given) => {
      const headers = given ? { Authorization: given } : {};
      for (const path of ["/poll", "/renew", "/leave", "/leases/x/result", "/nowhere"]) {
        const reply = await api.post(`/agent/v1${path}`, {}, headers);
        expect(reply.status).toBe(401);
        expect(reply.headers.get("WWW-Authenticate")).toMatch(/^Bearer /);
      }
      expect(
        (await api.send("PUT", "/agent/v1/leases/x/artifacts/a", { headers, body: "" })).status,
      ).toBe(401);
    },
  ),
  {
    rule: "An agent that presents another token than before is 403",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const thief = api.agent(agentTokens[1]);
      const request = { ...agent.status(), free_slots: 1, wait_s: 0 };
      for (const path of ["/poll", "/renew"]) {
        expect((await thief.send("POST", path, JSON.stringify(request))).status).toBe(403);
      }
      const leave = JSON.stringify({ agent_id: agent.id });
      expect((await thief.send("POST", "/leave", leave)).status).toBe(403);
      expect((await api.get("/pool/stats")).text).toContain(agent.id);
    },
  },
  ...each(
    [...posts, ["a release", release] as const],
    ([what]) => `${what} for a lease of an agent with another token is 403, and changes nothing`,
    async (api, [, send]) => {
      const { agent, job_id, lease_id } = await working(api);
      const before = await api.record(job_id);
      const thief = api.agent(agentTokens[1]);
      await thief.poll({ free_slots: 0 });
      expect((await send(thief, lease_id)).status).toBe(403);
      expect(await api.record(job_id)).toEqual(before);
      expect((await agent.result(lease_id)).status).toBe(200);
      expect((await api.record(job_id)).artifacts).toEqual([]);
    },
  ),
  ...each(
    [...posts, ["a release", release] as const],
    ([what]) => `${what} for a lease that was given to another agent is 409, and changes nothing`,
    async (api, [, send]) => {
      const { agent, job_id, lease_id } = await working(api);
      await release(agent, lease_id);
      const next = api.agent();
      const again = await next.takeJob();
      expect(again).toMatchObject({ execution_id: job_id, attempt: 2 });
      expect(again.lease_id).not.toBe(lease_id);
      const before = await api.record(job_id);
      expect((await send(agent, lease_id)).status).toBe(409);
      expect(await api.record(job_id)).toEqual(before);
      expect((await next.result(again.lease_id)).status).toBe(200);
      expect((await api.record(job_id)).artifacts).toEqual([]);
    },
  ),
  {
    rule: "A post for a lease that never was is 409",
    async check(api) {
      const agent = api.agent();
      for (const lease of [crypto.randomUUID(), "x", "%00"]) {
        for (const [, send] of posts) expect((await send(agent, lease)).status).toBe(409);
        expect((await release(agent, lease)).status).toBe(409);
      }
    },
  },
  ...each(
    posts,
    ([what]) => `${what} posted again is 200, with another body 409`,
    async (api, [what, send]) => {
      const { agent, job_id, lease_id } = await working(api);
      expect((await send(agent, lease_id)).status).toBe(200);
      const before = await api.record(job_id);
      expect((await send(agent, lease_id)).status).toBe(200);
      expect((await send(agent, lease_id, true)).status).toBe(409);
      expect(await api.record(job_id)).toEqual(before);
      if (what === "a result") return;
      await agent.result(lease_id);
      expect((await send(agent, lease_id)).status).toBe(200);
      expect((await send(agent, lease_id, true)).status).toBe(409);
    },
  ),
  ...each(
    posts,
    ([what]) => `${what} posted five times at once is 200 five times`,
    async (api, [, send]) => {
      const { agent, lease_id } = await working(api);
      const replies = await Promise.all(Array.from({ length: 5 }, () => send(agent, lease_id)));
      expect(replies.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
    },
  ),
  {
    rule: "A job that waits is given to a waiting agent at once",
    async check(api) {
      const [agent, other] = [api.agent(), api.agent()];
      const waiting = agent.poll({ wait_s: 20 });
      // Whoever is not woken looks again after five seconds; this one answers after three.
      const idle = other.poll({ free_slots: 0, wait_s: 3 });
      const { job_id } = await api.submit();
      const first = await Promise.race([waiting, idle]);
      expect(first.jobs.map((job) => job.execution_id)).toEqual([job_id]);
      expect((await idle).jobs).toEqual([]);
    },
  },
  {
    rule: "A leased job carries all that its agent needs",
    async check(api) {
      const { job_id } = await api.submit({
        code: "print(1)",
        input_data: { a: [1.0] },
        timeout: 5,
        startup_timeout: 20,
        requirements: ["numpy"],
      });
      expect(await api.agent().takeJob()).toMatchObject({
        execution_id: job_id,
        attempt: 1,
        job_type: { name: "default", cpu_limit: 1, network: "none" },
        image: "python:3.13-slim",
        code: "print(1)",
        input_json: '{"a":[1]}',
        requirements: ["numpy"],
        timeout_s: 5,
        startup_timeout_s: 20,
        caps: { stream_bytes: 1024 * 1024, artifact_bytes: 100_000 },
      });
    },
  },
  {
    rule: "Jobs are leased first come first served, and no more than there are free slots",
    async check(api) {
      const jobs = [await api.submit(), await api.submit(), await api.submit()];
      const agent = api.agent();
      expect((await agent.poll({ free_slots: 0 })).jobs).toEqual([]);
      const first = await agent.poll({ free_slots: 2 });
      const second = await agent.poll({ free_slots: 4 });
      const leased = [first, second].map((reply) => reply.jobs.map((job) => job.execution_id));
      expect(leased).toEqual([[jobs[0]?.job_id, jobs[1]?.job_id], [jobs[2]?.job_id]]);
    },
  },
  {
    rule: "A lease whose reply was lost is told again, to the same agent and within its free slots",
    async check(api) {
      await api.submit();
      const agent = api.agent();
      const job = await agent.takeJob();
      agent.held.delete(job.lease_id);
      expect((await agent.poll({ free_slots: 0 })).jobs).toEqual([]);
      expect((await api.agent().poll()).jobs).toEqual([]);
      expect((await agent.poll()).jobs).toEqual([job]);
      expect((await agent.poll()).jobs).toEqual([]);
      await agent.post(job.lease_id, "started", { job_ref: null });
      expect((await agent.poll({ leases: [] })).jobs).toEqual([]);
    },
  },
  {
    rule: "A lease that lives on by its renewals is not told as lost; one that is over is",
    async check(api) {
      const { agent, lease_id } = await working(api);
      expect((await agent.renew()).lost).toEqual([]);
      const stranger = crypto.randomUUID();
      expect((await agent.renew({ leases: [lease_id, stranger] })).lost).toEqual([stranger]);
      await release(agent, lease_id);
      const poll = await agent.poll({ wait_s: 20, free_slots: 0 });
      expect(poll.lost).toEqual([lease_id]);
    },
  },
  {
    rule: "The server tells its agents the intervals",
    async check(api) {
      const { intervals } = await api.agent().renew();
      expect(intervals).toEqual({ poll_wait_s: 25, lease_ttl_s: 30, renew_every_s: 8 });
    },
  },
  {
    rule: "A lease that is not renewed goes to another agent; lost twice, the job ends as internal_error",
    server: "with short leases",
    async check(api) {
      const { agent, job_id, lease_id } = await working(api);
      await agent.post(lease_id, "started", { job_ref: null });
      await agent.upload(lease_id, "a.txt", "first");
      const second = api.agent();
      const again = await second.takeJob();
      expect(again).toMatchObject({ execution_id: job_id, attempt: 2 });
      expect((await agent.result(lease_id)).status).toBe(409);
      expect((await agent.poll({ free_slots: 0 })).lost).toEqual([lease_id]);
      await second.post(again.lease_id, "logs", log(0, "last words"));
      await second.upload(again.lease_id, "a.txt", "second");

      const witness = api.agent();
      while ((await api.job(job_id)).status === "running") await witness.poll({ wait_s: 1 });
      expect(await api.record(job_id)).toMatchObject({
        status: "failed",
        error: { type: "internal_error" },
        stdout: "last words",
        artifacts: [],
      });
      expect((await second.result(again.lease_id)).status).toBe(409);
      expect((await api.get(`/jobs/${job_id}/artifacts/a.txt`)).status).toBe(404);
    },
  },
  {
    rule: "A job released before its code began is tried again; released again, it fails with that error",
    async check(api) {
      const { agent, job_id, lease_id } = await working(api);
      expect((await release(agent, lease_id)).status).toBe(200);
      expect((await api.job(job_id)).status).toBe("queued");
      const again = await agent.takeJob();
      expect(again.attempt).toBe(2);
      expect((await release(agent, again.lease_id)).status).toBe(200);
      expect(await api.record(job_id)).toMatchObject({ status: "failed", error: dockerError });
    },
  },
  {
    rule: "An upload whose hash or size differs from its headers is refused, and never shows",
    async check(api) {
      const { agent, job_id, lease_id } = await working(api);
      const wrong = { "X-Airlock-SHA256": "0".repeat(64) };
      expect((await agent.upload(lease_id, "a.txt", "a", wrong)).status).toBe(400);
      for (const sha256 of ["", "x", "0".repeat(63), "G".repeat(64)]) {
        const reply = await agent.upload(lease_id, "a.txt", "a", { "X-Airlock-SHA256": sha256 });
        expect(reply.status).toBe(400);
      }
      const tooLarge = new Uint8Array(100_001);
      expect((await agent.upload(lease_id, "a.bin", tooLarge)).status).toBe(413);
      await agent.result(lease_id);
      expect((await api.record(job_id)).artifacts).toEqual([]);
    },
  },
  {
    rule: "An upload that was refused may be made again as it should be",
    async check(api) {
      const { agent, job_id, lease_id } = await working(api);
      await agent.upload(lease_id, "a.txt", "a", { "X-Airlock-SHA256": "0".repeat(64) });
      expect((await agent.upload(lease_id, "a.txt", "a")).status).toBe(200);
      await agent.result(lease_id);
      expect((await api.get(`/jobs/${job_id}/artifacts/a.txt`)).text).toBe("a");
    },
  },
  ...each(
    [
      { status: "lost" },
      { status: "succeeded", error: failure },
      { status: "failed", error: null },
      { status: "timeout", error: { ...failure, type: "execution_timeout" }, exit_code: 1 },
      { stdout_base64: "?" },
      { exit_code: 1.5 },
      { timing: null },
    ],
    (changes) => `A result with ${JSON.stringify(changes)} is 400, and the job goes on`,
    async (api, changes) => {
      const { agent, job_id, lease_id } = await working(api);
      const reply = await agent.result(lease_id, changes as object);
      expect(reply.status).toBe(400);
      expect((await api.job(job_id)).status).toBe("running");
    },
  ),
  {
    rule: "An agent that leaves is no longer counted, and hands back what it has not begun",
    async check(api) {
      const begun = await working(api);
      await begun.agent.post(begun.lease_id, "started", { job_ref: null });
      const next = await api.submit();
      await begun.agent.takeJob();
      expect((await begun.agent.leave()).status).toBe(200);
      expect(JSON.parse((await api.get("/pool/stats")).text)).toMatchObject({ agents: [] });
      expect((await api.agent().takeJob()).execution_id).toBe(next.job_id);
      expect((await begun.agent.result(begun.lease_id)).status).toBe(200);
      expect((await begun.agent.leave()).status).toBe(200);
    },
  },
  {
    rule: "A waiting agent that leaves is not counted again by its poll",
    async check(api) {
      const agent = api.agent();
      const client = new AbortController();
      const waiting = agent.poll({ wait_s: 20 }, client.signal);
      await api.agent().poll();
      await agent.leave();
      client.abort();
      await expect(waiting).rejects.toThrow("aborted");
      expect((await api.get("/pool/stats")).text).not.toContain(agent.id);
    },
  },
];
