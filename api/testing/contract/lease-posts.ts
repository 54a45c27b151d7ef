import { expect } from "vitest";
import type { Reply, ScriptedAgent } from "../scripted-agent.ts";
import { each, type Row } from "./row.ts";
import { agentTokens } from "./servers.ts";
import { failure, log, release, working } from "./working.ts";

/** Every post for a lease, with two different bodies. */
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

export const leasePostRows: Row[] = [
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
    rule: "A post for an unknown lease is 409",
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
      // A result has all output, so logs are no longer needed.
      const late = (await send(agent, lease_id, true)).status;
      expect(late).toBe(what === "logs" ? 200 : 409);
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
    rule: "A result that asks for the next job gets the oldest one; a result that does not ask gets none",
    async check(api) {
      const { agent, lease_id } = await working(api);
      const { job_id: second } = await api.submit();
      const { job_id: third } = await api.submit();
      const { reply, jobs } = await agent.resultAndTake(lease_id);
      expect(reply.status).toBe(200);
      expect(jobs).toMatchObject([{ execution_id: second, attempt: 1 }]);
      expect((await api.job(second)).status).toBe("running");
      const plain = await agent.result(jobs[0]?.lease_id ?? "");
      expect(JSON.parse(plain.text)).toEqual({ jobs: [] });
      expect((await api.job(third)).status).toBe("queued");
      await agent.result((await agent.takeJob()).lease_id);
    },
  },
  {
    rule: "A repeated result is 200 and gets no job; a job that was lost with the first answer comes with the next poll",
    async check(api) {
      const { agent, lease_id } = await working(api);
      const { job_id } = await api.submit();
      const { jobs } = await agent.resultAndTake(lease_id);
      const lost = jobs[0]?.lease_id ?? "";
      agent.held.delete(lost);
      const again = await agent.resultAndTake(lease_id);
      expect(again.reply.status).toBe(200);
      expect(again.jobs).toEqual([]);
      expect(await agent.takeJob()).toMatchObject({ lease_id: lost, execution_id: job_id });
      await agent.result(lost);
    },
  },
  {
    rule: "A refused result gets no job",
    async check(api) {
      const { agent, lease_id } = await working(api);
      const { job_id } = await api.submit();
      expect((await agent.resultAndTake(lease_id, { exit_code: 1.5 })).reply.status).toBe(400);
      expect((await agent.resultAndTake(crypto.randomUUID())).reply.status).toBe(409);
      expect((await api.job(job_id)).status).toBe("queued");
      await agent.result(lease_id);
      await agent.result((await agent.takeJob()).lease_id);
    },
  },
  {
    rule: "An upload whose hash or size differs from its headers is refused, and is never visible",
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
    rule: "A refused upload can be repeated correctly",
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
];
