import { expect } from "vitest";
import { body, problemOf } from "./api.ts";
import { agentWith, buildType, defaultImage, digest } from "./building.ts";
import { on } from "./row.ts";

export const placementRows = on("with job types", [
  {
    rule: "Jobs of a built type go to agents that have the image, which is pinned in their records",
    async check(api) {
      await buildType(api, api.agent(), "build-4", { digest: digest(4) }, "v2.0.0");
      const { job_id } = await api.submit({ job_type: "build-4" });
      const without = await api.agent().poll({ images: [defaultImage] });
      expect(without.jobs).toEqual([]);
      const agent = api.agent();
      const { jobs } = await agent.poll({ images: [digest(4)] });
      expect(jobs).toMatchObject([{ execution_id: job_id, image: digest(4) }]);
      const pinned = { job_version: "v2.0.0", job_ref: `build-4@${digest(4)}` };
      expect(await api.record(job_id)).toMatchObject(pinned);
      await agent.result(jobs[0]?.lease_id ?? "", { job_ref: null });
      expect(await api.record(job_id)).toMatchObject({ status: "succeeded", ...pinned });
    },
  },
  {
    rule: "A record keeps its image reference when its job type is built again",
    async check(api) {
      const agent = api.agent();
      const run = async (image: string) => {
        const { job_id } = await api.submit({ job_type: "build-5" });
        const { jobs } = await agent.poll({ images: [image] });
        await agent.result(jobs[0]?.lease_id ?? "", { job_ref: `build-5@${image}` });
        return job_id;
      };
      await buildType(api, agent, "build-5", { digest: digest(50) }, "v1.0.0");
      const first = await run(digest(50));
      await buildType(api, agent, "build-5", { digest: digest(51) });
      const second = await run(digest(51));
      expect(await api.record(first)).toMatchObject({
        job_version: "v1.0.0",
        job_ref: `build-5@${digest(50)}`,
      });
      expect(await api.record(second)).toMatchObject({
        job_version: "latest",
        job_ref: `build-5@${digest(51)}`,
      });
    },
  },
  {
    rule: "A job says why it waits when no agent has its image, and runs when the image is built again",
    async check(api) {
      const agent = api.agent();
      await buildType(api, agent, "build-6", { digest: digest(60) });
      await agent.poll({ images: [] });
      const { job_id } = await api.submit({ job_type: "build-6" });
      const waiting = await api.get(`/jobs/${job_id}/result`);
      expect(body(waiting)).toMatchObject({
        message: expect.stringMatching(
          /at position 1\. No connected agent has the image registry\.example\/team-build-6:latest .* POST \/job-types\/build-6\/build/,
        ) as string,
      });
      const sync = await api.post("/execute", { code: "1", job_type: "build-6" });
      expect(sync.status).toBe(503);
      expect(sync.headers.get("Retry-After")).not.toBeNull();
      expect(problemOf(sync).detail).toContain("POST /job-types/build-6/build");
      await buildType(api, agent, "build-6", { digest: digest(61) });
      const { jobs } = await agent.poll({ images: [digest(61)] });
      expect(jobs).toMatchObject([{ execution_id: job_id, image: digest(61) }]);
    },
  },
  {
    rule: "Jobs of a type that is not built go to an agent that has the base image, if there is one",
    async check(api) {
      const { job_id } = await api.submit();
      await agentWith(api, defaultImage);
      const other = api.agent();
      expect((await other.poll({ images: [] })).jobs).toEqual([]);
      const { jobs } = await other.poll({ images: [defaultImage] });
      expect(jobs).toMatchObject([{ execution_id: job_id, image: defaultImage }]);
    },
  },
  {
    rule: "If no agent has the base image, any agent may take the job and try to pull it",
    async check(api) {
      const { job_id } = await api.submit({ job_type: "custom" });
      const { jobs } = await api.agent().poll({ images: [defaultImage] });
      expect(jobs).toMatchObject([{ execution_id: job_id, image: "registry.example/science:7" }]);
    },
  },
  {
    rule: "Jobs go to agents whose operators accept their type, if there is one",
    async check(api) {
      const [guarded, open] = [api.agent(), api.agent()];
      await open.poll({ free_slots: 0 });
      const { job_id } = await api.submit({ job_type: "custom" });
      const accepts = { job_types: ["cus", "*-custom"], builds: true };
      const identity = { ...guarded.status().agent, accepts };
      expect((await guarded.poll({ agent: identity })).jobs).toEqual([]);
      accepts.job_types.push("cus*");
      const { jobs } = await guarded.poll({ agent: identity });
      expect(jobs).toMatchObject([{ execution_id: job_id }]);
    },
  },
  {
    rule: "Jobs of a type with labels go to agents that have them; without such an agent the message says so",
    async check(api) {
      const { job_id } = await api.submit({ job_type: "labelled" });
      const agent = api.agent();
      expect((await agent.poll()).jobs).toEqual([]);
      expect(body(await api.get(`/jobs/${job_id}/result`))).toMatchObject({
        message: expect.stringContaining("gpu=a100") as string,
      });
      const identity = { ...agent.status().agent, labels: { gpu: "a100", zone: "x" } };
      const { jobs } = await agent.poll({ agent: identity });
      expect(jobs).toMatchObject([{ execution_id: job_id }]);
    },
  },
]);
