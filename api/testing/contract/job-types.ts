import { expect } from "vitest";
import { JobTypeList, JobTypeView } from "../../../shared/wire/job-type.ts";
import { type Api, body, problemOf } from "./api.ts";
import { agentWith, buildType, defaultImage, digest } from "./building.ts";
import { each, on } from "./row.ts";

async function jobType(api: Api, name: string): Promise<JobTypeView> {
  const reply = await api.get(`/job-types/${name}`);
  expect(reply.status).toBe(200);
  return JobTypeView.strict().parse(body(reply));
}

const imageExists = async (api: Api, name: string) => (await jobType(api, name)).image_exists;

export const jobTypeRows = on("with job types", [
  {
    rule: "GET /job-types lists every configured job type, default first",
    async check(api) {
      const reply = await api.get("/job-types");
      expect(reply.status).toBe(200);
      const list = JobTypeList.parse(body(reply));
      const names = list.map(({ name }) => name);
      expect(names[0]).toBe("default");
      expect(names).toEqual(
        expect.arrayContaining(["versioned", "official", "custom", "labelled"]),
      );
      expect(list[0]).toEqual({
        name: "default",
        requirements: [],
        python_version: "3.13",
        memory_limit: "512m",
        cpu_limit: 1,
        pids: 128,
        timeout: 30,
        image_exists: false,
        languages: expect.arrayContaining([
          { name: "python", version: "3.13" },
          { name: "cpp", version: null },
        ]) as unknown,
      });
      for (const one of list) expect(await jobType(api, one.name)).toEqual(one);
    },
  },
  {
    rule: "GET /job-types/{name} shows the configured limits",
    async check(api) {
      const custom = { memory_limit: "2g", cpu_limit: 1.5, requirements: [] };
      expect(await jobType(api, "custom")).toMatchObject(custom);
      expect(await jobType(api, "build-0")).toMatchObject({ requirements: ["numpy==2.3.4"] });
    },
  },
  ...each(
    ["unknown", "hidden-1", "__proto__", "Default", "a%2Fb", "%00"],
    (name) => `GET and POST of the job type ${name}, which is not configured, are 404`,
    async (api, name) => {
      const path = `/job-types/${name}`;
      for (const reply of [
        await api.get(path),
        await api.get(`${path}/build`),
        await api.post(`${path}/build`),
      ]) {
        expect(reply.status).toBe(404);
      }
    },
  ),
  {
    rule: "A job type of other tenants is nowhere: the answers are those for an unknown name",
    async check(api) {
      const told = async (name: string) => {
        const jobs = await Promise.all([
          api.post("/execute/async", { code: "1", job_type: name }),
          api.post("/execute/batch", { jobs: [{ code: "1", job_type: name }] }),
          api.post(`/jobs/${(await api.submit()).job_id}/rerun`, { job_type: name }),
        ]);
        const views = [
          await api.get(`/job-types/${name}`),
          await api.get(`/job-types/${name}/build`),
        ];
        const replies = [...jobs, ...views, await api.post(`/job-types/${name}/build`)];
        return replies.map(({ status, text }) => ({
          status,
          text: text
            .replaceAll(name, "NAME")
            .replaceAll(/"(correlation_id|batch_id|created_at)":"[^"]*"/g, ""),
        }));
      };
      const hidden = await told("hidden-1");
      expect(hidden).toEqual(await told("hidden-2"));
      expect(hidden.map(({ status }) => status)).toEqual([400, 202, 400, 404, 404, 404]);
      const names = (await api.get("/job-types")).text;
      const description = (await api.get("/openapi.json")).text;
      for (const text of [names, description, JSON.stringify(hidden)]) {
        expect(text).not.toContain("hidden-1");
      }
      for (const text of [names, description]) expect(text).toContain('"own"');
      expect((await api.submit({ job_type: "own" })).status).toBe("queued");
    },
  },
  {
    rule: "python_version is the configured one, else the one in the base image's name, else that of the default base image",
    async check(api) {
      expect(await jobType(api, "versioned")).toMatchObject({ python_version: "3.12" });
      expect(await jobType(api, "official")).toMatchObject({ python_version: "3.11.9" });
      expect(await jobType(api, "custom")).toMatchObject({ python_version: "3.13" });
    },
  },
  {
    rule: "python_version without base_image picks python:<version>-slim",
    async check(api) {
      await api.submit({ job_type: "versioned" });
      const job = await api.agent().takeJob();
      expect(job).toMatchObject({ image: "python:3.12-slim" });
      expect(job.job_type.base_image).toBe("python:3.12-slim");
    },
  },
  {
    rule: "python_version of a built image is the one that the build has found in it",
    async check(api) {
      await buildType(api, api.agent(), "build-1", { python_version: "3.9.2" });
      expect(await jobType(api, "build-1")).toMatchObject({ python_version: "3.9.2" });
    },
  },
  {
    rule: "Agents are asked about every image that jobs may need, built images by their digest",
    async check(api) {
      const agent = api.agent();
      const before = (await agent.poll()).images_wanted;
      expect(before).toEqual(
        expect.arrayContaining([defaultImage, "python:3.12-slim", "registry.example/science:7"]),
      );
      await buildType(api, agent, "build-2", { digest: digest(2) });
      for (const { images_wanted } of [await agent.poll(), await agent.renew()]) {
        expect(images_wanted).toEqual(expect.arrayContaining([...before, digest(2)]));
      }
    },
  },
  {
    rule: "image_exists of a job type that installs nothing: whether a connected agent has its base image",
    async check(api) {
      expect(await imageExists(api, "default")).toBe(false);
      const agent = await agentWith(api, defaultImage);
      expect(await imageExists(api, "default")).toBe(true);
      expect(await imageExists(api, "custom")).toBe(false);
      const engine = { available: false, version: null, runtimes: [] };
      await agent.poll({ images: [defaultImage], engine });
      expect(await imageExists(api, "default")).toBe(false);
      await agent.leave();
      expect(await imageExists(api, "default")).toBe(false);
    },
  },
  {
    rule: "image_exists of a job type with requirements: whether a connected agent has its built image",
    async check(api) {
      const agent = await agentWith(api, defaultImage);
      expect(await imageExists(api, "build-3")).toBe(false);
      await buildType(api, agent, "build-3", { digest: digest(3) });
      expect(await imageExists(api, "build-3")).toBe(true);
      await agent.poll({ images: [defaultImage] });
      expect(await imageExists(api, "build-3")).toBe(false);
      await agentWith(api, digest(3));
      expect(await imageExists(api, "build-3")).toBe(true);
    },
  },
  {
    rule: "A poll that is answered late does not restore an older list of the agent's images",
    async check(api) {
      const agent = api.agent();
      const hangUp = new AbortController();
      const pending = agent.poll({ wait_s: 20, free_slots: 0, images: [] }, hangUp.signal);
      pending.catch(() => {});
      // Concurrent requests have no order: the poll's status is stored when the agent is known.
      let pool = "";
      while (!pool.includes(agent.id)) pool = (await api.get("/pool/stats")).text;
      await agent.renew({ images: [defaultImage] });
      await api.submit();
      expect(await imageExists(api, "default")).toBe(true);
      hangUp.abort();
    },
  },
  {
    rule: "An import error on a job type that is not built says so; on a built one it does not",
    async check(api) {
      const agent = api.agent();
      const error = { type: "import_error", message: "No numpy", phase: "execution" } as const;
      const messageOn = async (image: string) => {
        const { job_id } = await api.submit({ job_type: "build-0" });
        const { jobs } = await agent.poll({ images: [image] });
        const lease = jobs[0]?.lease_id ?? "";
        const job_ref = `build-0@${digest(9)}`;
        await agent.post(lease, "started", { job_ref });
        await agent.result(lease, { status: "failed", exit_code: 1, error, job_ref });
        return (await api.record(job_id)).error?.message;
      };
      expect(await messageOn(defaultImage)).toBe(
        "No numpy. Job type build-0 is not built, so its requirements (numpy==2.3.4) are not installed: POST /job-types/build-0/build.",
      );
      await buildType(api, agent, "build-0", { digest: digest(9) });
      expect(await messageOn(digest(9))).toBe("No numpy");
    },
  },
  {
    rule: "A module that is missing has a warning that says how to get it",
    async check(api) {
      const warningsOf = async (module: string) => {
        const { job_id } = await api.submit();
        const agent = api.agent();
        const { lease_id } = await agent.takeJob();
        const message = `ModuleNotFoundError: No module named '${module}'`;
        const error = { type: "import_error", message, phase: "execution" } as const;
        await agent.result(lease_id, { status: "failed", exit_code: 1, error });
        const record = await api.record(job_id);
        expect(record.error).toEqual(error);
        return record.warnings;
      };
      expect(await warningsOf("numpy")).toEqual([
        expect.stringMatching(/^Job type default has no module numpy\. .* use job_type .*build-0/),
      ]);
      expect(await warningsOf("yaml")).toEqual([
        "Job type default has no module yaml. If it comes from a package (pyyaml): an operator adds that to the requirements of a job type, and builds it.",
      ]);
      expect(await warningsOf("IPython")).toEqual([expect.stringContaining("display(value)")]);
      expect(await warningsOf("numpy.missing")).toBeUndefined();
    },
  },
  {
    rule: "In production mode a submission whose job type has no built image is refused, and says what to do",
    server: "in production",
    async check(api) {
      await agentWith(api, defaultImage);
      expect(await imageExists(api, "ml")).toBe(false);
      for (const path of ["/execute", "/execute/async"]) {
        const reply = await api.post(path, { code: "1", job_type: "ml" });
        expect(reply.status).toBe(400);
        expect(problemOf(reply).detail).toContain("POST /job-types/ml/build");
        expect(problemOf(reply).errors).toEqual([
          { path: "job_type", message: "must be built first" },
        ]);
      }
      expect(await api.newest()).toEqual([]);
    },
  },
  {
    rule: "In production mode a job type that is built runs",
    server: "in production",
    async check(api) {
      const agent = api.agent();
      await buildType(api, agent, "default", { digest: digest(7) });
      expect(await imageExists(api, "default")).toBe(true);
      const { job_id } = await api.submit();
      const { jobs } = await agent.poll({ images: [digest(7)] });
      expect(jobs).toMatchObject([{ execution_id: job_id, image: digest(7) }]);
      await agent.result(jobs[0]?.lease_id ?? "");
    },
  },
]);
