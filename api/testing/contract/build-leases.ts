import { expect } from "vitest";
import { body, problemOf } from "./api.ts";
import { broken, digest, failure, logChunk, startBuild, success } from "./building.ts";
import { on } from "./row.ts";
import { agentTokens } from "./servers.ts";

/** Builds whose agent repeats a post, releases the build, leaves or is lost. */
export const buildLeaseRows = on("with job types", [
  {
    rule: "A build whose agent never got the reply is delivered again to that agent",
    async check(api) {
      const agent = api.agent();
      const { lease, answer } = await startBuild(api, agent, "build-14");
      const again = await agent.poll({ free_builds: 1, builds: [] });
      expect(again.builds).toEqual([lease]);
      await agent.postBuild(lease.lease_id, "result", success);
      await answer;
    },
  },
  {
    rule: "An agent's posts about a build may be repeated; another body is 409, another token 403",
    async check(api) {
      const agent = api.agent();
      const { lease, answer } = await startBuild(api, agent, "build-14");
      const post = (what: string, content: object, by = agent) =>
        by.postBuild(lease.lease_id, what, content).then(({ status }) => status);
      expect(await post("logs", logChunk(0, "a"))).toBe(200);
      expect(await post("logs", logChunk(0, "a"))).toBe(200);
      expect(await post("logs", logChunk(0, "b"))).toBe(409);
      expect(await post("logs", logChunk(1024 * 1024, "b"))).toBe(413);
      expect(await post("result", success, api.agent(agentTokens[1]))).toBe(403);
      expect(await post("result", { status: "built", digest: "sha256:1" })).toBe(400);
      expect(await post("result", success)).toBe(200);
      expect(await post("result", success)).toBe(200);
      expect(await post("result", failure(broken))).toBe(409);
      expect(await post("release", { error: broken })).toBe(409);
      expect((await agent.postBuild(crypto.randomUUID(), "result", success)).status).toBe(409);
      expect(body(await answer)).toMatchObject({ digest: success.digest });
    },
  },
  {
    rule: "A released build is tried once more, by any agent, and then fails with the error",
    async check(api) {
      const agent = api.agent();
      const { lease, answer } = await startBuild(api, agent, "build-15");
      await agent.postBuild(lease.lease_id, "release", { error: broken });
      const other = api.agent();
      const second = await other.takeBuild();
      expect(second).toMatchObject({ attempt: 2, job_type: "build-15" });
      expect(second.lease_id).not.toBe(lease.lease_id);
      expect((await agent.postBuild(lease.lease_id, "result", success)).status).toBe(409);
      await other.postBuild(second.lease_id, "release", { error: broken });
      const reply = await answer;
      expect(reply.status).toBe(502);
      expect(problemOf(reply).error).toEqual(broken);
    },
  },
  {
    rule: "If an agent leaves, its build goes to another agent at once",
    async check(api) {
      const agent = api.agent();
      const other = api.agent();
      await other.poll();
      const { lease, answer } = await startBuild(api, agent, "build-15");
      await agent.leave();
      const second = await other.takeBuild();
      expect(second).toMatchObject({ job_type: lease.job_type, attempt: 1 });
      await other.postBuild(second.lease_id, "result", success);
      expect((await answer).status).toBe(200);
    },
  },
  {
    rule: "A queued build ends with 503 if no agent is left to take it",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const answer = api.post("/job-types/build-7/build");
      await expect
        .poll(async () => (await api.get("/job-types/build-7/build")).status, { timeout: 30_000 })
        .toBe(200);
      await agent.leave();
      const reply = await answer;
      expect(reply.status).toBe(503);
      expect(reply.headers.get("Retry-After")).not.toBeNull();
    },
  },
  {
    rule: "A build whose lease expires is tried once more, and posts of its first agent are refused",
    server: "with short leases",
    async check(api) {
      const lost = api.agent();
      const { lease, answer } = await startBuild(api, lost, "science");
      const agent = api.agent();
      const second = await agent.takeBuild();
      expect(second).toMatchObject({ job_type: "science", attempt: 2 });
      expect((await lost.renew({ builds: [lease.lease_id] })).lost).toEqual([lease.lease_id]);
      expect((await lost.postBuild(lease.lease_id, "logs", logChunk(0, "x"))).status).toBe(409);
      expect((await lost.postBuild(lease.lease_id, "result", success)).status).toBe(409);
      await agent.postBuild(second.lease_id, "result", { ...success, digest: digest(2) });
      expect(body(await answer)).toMatchObject({ digest: digest(2) });
    },
  },
  {
    rule: "A build that loses its agent twice fails",
    server: "with short leases",
    async check(api) {
      const { answer } = await startBuild(api, api.agent(), "poison");
      await api.agent().takeBuild();
      const witness = api.agent();
      const beat = setInterval(() => void witness.renew().catch(() => {}), 500);
      const reply = await answer.finally(() => clearInterval(beat));
      expect(reply.status).toBe(502);
      expect(problemOf(reply).error).toMatchObject({ type: "internal_error" });
    },
  },
]);
