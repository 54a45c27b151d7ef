import { expect } from "vitest";
import { each, type Row } from "./row.ts";
import { agentTokens } from "./servers.ts";
import { dockerError, log, release, working } from "./working.ts";

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
    rule: "An agent that presents a different token than before gets 403",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const thief = api.agent(agentTokens[1]);
      const request = agent.pollRequest({ free_slots: 1 });
      for (const path of ["/poll", "/renew"]) {
        expect((await thief.send("POST", path, JSON.stringify(request))).status).toBe(403);
      }
      const leave = JSON.stringify({ agent_id: agent.id, crashed: false });
      expect((await thief.send("POST", "/leave", leave)).status).toBe(403);
      expect((await api.get("/pool/stats")).text).toContain(agent.id);
    },
  },
  {
    rule: "A waiting agent gets a queued job at once",
    async check(api) {
      const [agent, other] = [api.agent(), api.agent()];
      const waiting = agent.poll({ wait_s: 20 });
      const { job_id } = await api.submit();
      // A poll that is not woken looks again after five seconds; this one must answer after three.
      const idle = other.poll({ free_slots: 0, wait_s: 3 });
      const first = await Promise.race([waiting, idle]);
      expect(first.jobs.map((job) => job.execution_id)).toEqual([job_id]);
      expect((await idle).jobs).toEqual([]);
    },
  },
  {
    rule: "A leased job has everything that its agent needs",
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
        requirements: [],
        timeout_s: 5,
        startup_timeout_s: 20,
        caps: { stream_bytes: 1024 * 1024, artifact_bytes: 100_000 },
      });
    },
  },
  {
    rule: "A new agent is asked to keep containers ready for the default job type and recently used ones",
    async check(api) {
      const told = async (is_new: boolean) =>
        (await api.agent().poll({ is_new })).keep_ready.map(({ job_type }) => job_type.name);
      expect(await told(true)).toContain("default");
      await api.submit({ job_type: "ml" });
      expect(await told(false)).toEqual([]);
      expect(await told(true)).toEqual(["default", "ml"]);
      expect((await api.agent().poll({ is_new: true })).keep_ready[1]).toMatchObject({
        job_type: { name: "ml", memory_limit: "1g" },
        image: "python:3.13-slim",
      });
    },
  },
  {
    rule: "Jobs are leased in order of submission, and never more than there are free slots",
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
    rule: "A lease whose reply was lost is delivered again, to the same agent and within its free slots",
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
    rule: "A renewed lease is not reported as lost; an expired lease is",
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
    rule: "The API sends its agents the intervals",
    async check(api) {
      const { intervals } = await api.agent().renew();
      expect(intervals).toEqual({ poll_wait_s: 25, lease_ttl_s: 180, renew_every_s: 7.5 });
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
      await second.post(again.lease_id, "logs", log(0, "last words"));
      expect(again).toMatchObject({ execution_id: job_id, attempt: 2 });
      expect((await agent.result(lease_id)).status).toBe(409);
      expect((await agent.poll({ free_slots: 0 })).lost).toEqual([lease_id]);
      await second.upload(again.lease_id, "a.txt", "second");

      const witness = api.agent();
      while ((await api.job(job_id)).status === "running") await witness.poll({ wait_s: 1 });
      expect(await api.record(job_id)).toMatchObject({
        status: "failed",
        error: { type: "internal_error" },
        stdout: "last words",
        artifacts: [],
      });
      expect((await api.record(job_id, "?view=all")).attempts).toMatchObject([
        { attempt: 1, agent_id: agent.id, outcome: "lease_expired" },
        { attempt: 2, agent_id: second.id, outcome: "lease_expired" },
      ]);
      expect((await second.result(again.lease_id)).status).toBe(409);
      expect((await api.get(`/jobs/${job_id}/artifacts/a.txt`)).status).toBe(404);
    },
  },
  {
    rule: "A job released before its code started is tried again; released a second time, it fails with that error",
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
    rule: "An agent that leaves is no longer counted, and its jobs go to others at once",
    async check(api) {
      const begun = await working(api);
      await begun.agent.post(begun.lease_id, "started", { job_ref: null });
      const next = await api.submit();
      await begun.agent.takeJob();
      expect((await begun.agent.leave()).status).toBe(200);
      expect(JSON.parse((await api.get("/pool/stats")).text)).toMatchObject({ agents: [] });
      const other = api.agent();
      const [first, second] = [await other.takeJob(), await other.takeJob()];
      expect(first).toMatchObject({ execution_id: begun.job_id, attempt: 2 });
      expect(second).toMatchObject({ execution_id: next.job_id, attempt: 1 });
      expect((await begun.agent.result(begun.lease_id)).status).toBe(409);
      expect((await begun.agent.leave()).status).toBe(200);
    },
  },
  {
    rule: "The waiting poll of an agent that leaves does not make the agent count again",
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
