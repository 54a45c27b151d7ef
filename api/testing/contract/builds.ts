import { expect } from "vitest";
import { Build, BuildResult } from "../../../shared/wire/build.ts";
import type { ScriptedAgent } from "../scripted-agent.ts";
import { type Api, body, expectFault, problemOf } from "./api.ts";
import { broken, digest, failure, logChunk, startBuild, success } from "./building.ts";
import { each, on } from "./row.ts";

const missing = {
  type: "dependency_error",
  message: "ERROR: No matching distribution found for numpy==2.3.4",
  phase: "startup",
} as const;

/** Lets an agent build every requested image until it is stopped. */
async function buildOnAndOn(agent: ScriptedAgent, stop: AbortSignal): Promise<void> {
  while (!stop.aborted) {
    for (const { lease_id } of (await agent.poll({ free_builds: 1, wait_s: 0.1 })).builds) {
      await agent.postBuild(lease_id, "result", success);
    }
  }
}

async function lastBuild(api: Api, name: string): Promise<Build> {
  return Build.strict().parse(body(await api.get(`/job-types/${name}/build`)));
}

const goodTags = ["v0.0.0", "v1.2.3", "v10.20.30", "v1.0.0-rc.1", "v1.0.0-alpha-b.7"];
const badTags = [
  "",
  "1.2.3",
  "v1",
  "v1.2",
  "v1.2.3.4",
  "v01.2.3",
  "v1.2.3-",
  "v1.2.3-01",
  "v1.2.3+build",
  "v1.2.3%0A",
  "latest",
  "V1.2.3",
  `v1.2.3-${"a".repeat(130)}`,
];

export const buildRows = on("with job types", [
  {
    rule: "POST /job-types/{name}/build answers with the build result once an agent has built the image",
    async check(api) {
      const agent = api.agent();
      const { lease, answer } = await startBuild(api, agent, "build-8");
      expect(lease).toMatchObject({
        attempt: 1,
        job_type: "build-8",
        base_image: "python:3.13-slim",
        requirements: ["numpy==2.3.4"],
        repository: "registry.example/team-build-8",
        tags: ["latest"],
        timeout_s: 1800,
      });
      await agent.postBuild(lease.lease_id, "result", { ...success, digest: digest(8) });
      const reply = await answer;
      expect(reply.status).toBe(200);
      expect(BuildResult.strict().parse(body(reply))).toEqual({
        status: "built",
        job_type: "build-8",
        version: `build-8@${digest(8)}`,
        digest: digest(8),
        image_ref: "registry.example/team-build-8:latest",
      });
    },
  },
  ...each(
    goodTags,
    (tag) => `The version_tag ${tag} is the image's tag, and latest moves with it`,
    async (api, tag) => {
      const agent = api.agent();
      const { lease, answer } = await startBuild(api, agent, "build-9", tag);
      expect(lease.tags).toEqual([tag, "latest"]);
      await agent.postBuild(lease.lease_id, "result", success);
      expect(body(await answer)).toMatchObject({
        image_ref: `registry.example/team-build-9:${tag}`,
      });
    },
  ),
  ...each(
    badTags,
    (tag) => `The version_tag "${tag.slice(0, 20)}" is 400`,
    async (api, tag) => {
      const reply = await api.post(`/job-types/default/build?version_tag=${tag}`);
      expectFault(reply, "version_tag");
    },
  ),
  {
    rule: "A build without an agent that can work is 503 with Retry-After, and nothing is stored",
    async check(api) {
      const agent = api.agent();
      const engine = { available: false, version: null, runtimes: [] };
      for (const prepare of [async () => {}, () => agent.poll({ engine })]) {
        await prepare();
        const reply = await api.post("/job-types/build-10/build");
        expect(reply.status).toBe(503);
        expect(Number(reply.headers.get("Retry-After"))).toBeGreaterThan(0);
        expect(problemOf(reply).error).toMatchObject({ type: "service_unavailable" });
      }
      expect((await api.get("/job-types/build-10/build")).status).toBe(404);
    },
  },
  {
    rule: "A build goes only to an agent with the labels of the job type; without one it is 503",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const refused = await api.post("/job-types/labelled/build");
      expect(refused.status).toBe(503);
      expect(problemOf(refused).detail).toContain("gpu=a100");
      const identity = { ...agent.status().agent, labels: { gpu: "a100" } };
      await agent.poll({ agent: identity });
      const answer = api.post("/job-types/labelled/build");
      expect((await api.agent().poll({ free_builds: 1, wait_s: 0.2 })).builds).toEqual([]);
      const lease = await agent.takeBuild({ agent: identity });
      await agent.postBuild(lease.lease_id, "result", success);
      expect((await answer).status).toBe(200);
    },
  },
  {
    rule: "Packages that cannot be installed give 422 dependency_error with pip's message",
    async check(api) {
      const agent = api.agent();
      const { lease, answer } = await startBuild(api, agent, "build-11");
      await agent.postBuild(lease.lease_id, "result", failure(missing));
      const reply = await answer;
      expect(reply.status).toBe(422);
      expect(problemOf(reply).error).toEqual(missing);
      expect(problemOf(reply).detail).toContain(missing.message);
      expect(await lastBuild(api, "build-11")).toMatchObject({
        status: "failed",
        error: missing,
        digest: null,
        version: null,
      });
    },
  },
  {
    rule: "A build that fails in the engine gives 502 docker_error with the engine's message",
    async check(api) {
      const agent = api.agent();
      const { lease, answer } = await startBuild(api, agent, "build-11");
      await agent.postBuild(lease.lease_id, "result", failure(broken));
      const reply = await answer;
      expect(reply.status).toBe(502);
      expect(problemOf(reply).error).toEqual(broken);
    },
  },
  {
    rule: "A build and its log can be read during the build and after it",
    async check(api) {
      const agent = api.agent();
      expect((await api.get("/job-types/custom/build")).status).toBe(404);
      const { lease, answer } = await startBuild(api, agent, "custom", "v1.0.0");
      await agent.postBuild(lease.lease_id, "logs", logChunk(0, "Collecting "));
      await agent.postBuild(lease.lease_id, "logs", logChunk(11, "numpy\n"));
      const running = await lastBuild(api, "custom");
      expect(running).toMatchObject({
        status: "running",
        image_ref: "registry.example/team-custom:v1.0.0",
        log: "Collecting numpy\n",
        ended_at: null,
      });
      await agent.postBuild(lease.lease_id, "result", success);
      await answer;
      expect(await lastBuild(api, "custom")).toMatchObject({
        status: "built",
        version: `custom@${digest(1)}`,
        digest: digest(1),
        error: null,
        log: "Collecting numpy\n",
      });
    },
  },
  {
    rule: "Equal requests share one build; another tag is another build",
    async check(api) {
      const agent = api.agent();
      const { lease, answer } = await startBuild(api, agent, "build-12", "v1.0.0");
      const path = "/job-types/build-12/build?version_tag=v1.0.0";
      const others = Promise.all([1, 2, 3].map(() => api.post(path)));
      const latest = api.post("/job-types/build-12/build");
      const another = await api.agent().takeBuild();
      expect(another.tags).toEqual(["latest"]);
      expect((await agent.poll({ free_builds: 9, builds: [lease.lease_id] })).builds).toEqual([]);
      await agent.postBuild(another.lease_id, "result", { ...success, digest: digest(12) });
      expect(body(await latest)).toMatchObject({ digest: digest(12) });
      await agent.postBuild(lease.lease_id, "result", success);
      const first = await answer;
      expect(first.status).toBe(200);
      // A slow request may have arrived after the build had ended.
      const serving = new AbortController();
      const late = buildOnAndOn(agent, serving.signal);
      for (const one of await others) expect(body(one)).toEqual(body(first));
      serving.abort();
      await late;
    },
  },
  {
    rule: "A build continues if its client hangs up",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const hangUp = new AbortController();
      const path = `${api.url}/job-types/build-13/build`;
      const request = fetch(path, { method: "POST", signal: hangUp.signal });
      const lease = await agent.takeBuild();
      hangUp.abort();
      await expect(request).rejects.toThrow("aborted");
      expect((await agent.renew({ builds: [lease.lease_id] })).lost).toEqual([]);
      const reply = await agent.postBuild(lease.lease_id, "result", success);
      expect(reply.status).toBe(200);
      expect(await lastBuild(api, "build-13")).toMatchObject({ status: "built" });
    },
  },
]);
