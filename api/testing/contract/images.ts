import { expect } from "vitest";
import {
  Build,
  BuildResult,
  ImageSource,
  JobTypeList,
  JobTypeView,
} from "../../../shared/wire/job-types.ts";
import { type Reply, type ScriptedAgent, sha256 } from "../scripted-agent.ts";
import {
  agentTokens,
  agentWith,
  type Api,
  body,
  broken,
  buildFailure,
  buildSuccess,
  buildType,
  defaultImage,
  digest,
  expectFault,
  logChunk,
  maxImageBytes,
  on,
  problemOf,
  startBuild,
  test,
  working,
} from "./api.ts";

const missingImage = `/images/${digest(91)}`;

const archive = (seed: string): Uint8Array<ArrayBuffer> =>
  new TextEncoder().encode(`an archive of ${seed} `.repeat(500));

async function put(
  agent: ScriptedAgent,
  leaseId: string,
  bytes: Uint8Array<ArrayBuffer>,
  hash?: string,
): Promise<Reply> {
  // A server that refuses a body without reading it may close the connection, so the connection is not reused.
  const headers = { "X-Airlock-SHA256": hash ?? (await sha256(bytes)), Connection: "close" };
  return agent.send("PUT", `/builds/${leaseId}/image`, bytes, headers);
}

/** A running build; `end` reports its result. */
async function building(api: Api, name: string) {
  const agent = api.agent();
  const { lease, answer } = await startBuild(api, agent, name);
  const end = async (made: { digest: string; manifest_digest?: string }) => {
    await agent.postBuild(lease.lease_id, "result", { ...buildSuccess, ...made });
    expect((await answer).status).toBe(200);
  };
  return { agent, lease, answer, end };
}

export const imageRows = on("with job types", [
  test("The image of a build reaches another agent byte for byte as it was uploaded", async (api) => {
    const { agent, lease, end } = await building(api, "image-0");
    expect(lease).toMatchObject({ share: "store", share_max_bytes: maxImageBytes });
    const bytes = archive(crypto.randomUUID());
    expect((await put(agent, lease.lease_id, bytes)).status).toBe(200);
    const other = api.agent(agentTokens[1]);
    const source = `/images/${digest(90)}`;
    expect((await other.get(source)).status).toBe(404);
    await end({ digest: digest(90) });
    const told = await other.get(source);
    expect(ImageSource.strict().parse(body(told))).toEqual({
      image: digest(90),
      job_type: "image-0",
      labels: {},
      registry_ref: null,
    });
    const got = await other.get(`${source}/archive`);
    expect(got.status).toBe(200);
    expect(got.headers.get("Content-Length")).toBe(String(bytes.length));
    expect(got.text).toBe(new TextDecoder().decode(bytes));
    const ETag = got.headers.get("ETag") ?? "";
    for (const [known, part] of [
      [ETag, bytes.subarray(100)],
      ['"another"', bytes],
    ] as const) {
      const asked = { Range: "bytes=100-", "If-Range": known };
      const rest = await other.send("GET", `${source}/archive`, undefined, asked);
      expect(rest.status).toBe(known === ETag ? 206 : 200);
      expect(rest.text).toBe(new TextDecoder().decode(part));
    }
    const { images_wanted } = await other.poll({ free_slots: 0 });
    expect(images_wanted).toContain(digest(90));
  }),
  test("Uploading the same image again is 200 and a different one 409, also after the build has ended", async (api) => {
    const { agent, lease, end } = await building(api, "image-1");
    const bytes = archive("a");
    expect((await put(agent, lease.lease_id, bytes)).status).toBe(200);
    for (const finish of [async () => {}, () => end({ digest: digest(92) })]) {
      await finish();
      expect((await put(agent, lease.lease_id, bytes)).status).toBe(200);
      expect((await put(agent, lease.lease_id, archive("b"))).status).toBe(409);
    }
  }),
  test("An image that differs from its headers is 400, an image that is too large 413, and nothing of it is stored", async (api) => {
    const { agent, lease, end } = await building(api, "image-2");
    const bytes = archive("c");
    const large = new Uint8Array(maxImageBytes + 1);
    for (const [content, hash, status] of [
      [bytes, "0".repeat(64), 400],
      [bytes, "none", 400],
      [large, undefined, 413],
    ] as const) {
      const reply = await put(agent, lease.lease_id, content, hash);
      expect({ hash, status: reply.status }).toEqual({ hash, status });
      expect(problemOf(reply).detail).not.toBe("");
    }
    const unmeasured = await fetch(`${api.url}/agent/v1/builds/${lease.lease_id}/image`, {
      method: "PUT",
      headers: {
        Authorization: `Bearer ${agentTokens[0]}`,
        "X-Airlock-SHA256": await sha256(bytes),
        Connection: "close",
      },
      body: new Blob([bytes]).stream(),
      duplex: "half",
    });
    expect(unmeasured.status).toBe(400);
    await end({ digest: digest(93) });
    expect((await agent.get(`/images/${digest(93)}`)).status).toBe(404);
    expect((await agent.get(`/images/${digest(93)}/archive`)).status).toBe(404);
    // Too late for it now.
    expect((await put(agent, lease.lease_id, bytes)).status).toBe(409);
  }),
  test("An image for the lease of another token is 403, for an unknown lease 409", async (api) => {
    const { agent, lease, end } = await building(api, "image-3");
    const thief = api.agent(agentTokens[1]);
    await thief.poll({ free_slots: 0 });
    expect((await put(thief, lease.lease_id, archive("d"))).status).toBe(403);
    for (const id of [crypto.randomUUID(), "x", "%00"]) {
      expect((await put(agent, id, archive("d"))).status).toBe(409);
    }
    await end({ digest: digest(94) });
    expect((await agent.get(`/images/${digest(94)}`)).status).toBe(404);
  }),
  test("The image of a released attempt is replaced by the image of the next attempt", async (api) => {
    const { agent, lease, answer } = await building(api, "image-5");
    expect((await put(agent, lease.lease_id, archive("f"))).status).toBe(200);
    await agent.postBuild(lease.lease_id, "release", { error: broken });
    const other = api.agent();
    const second = await other.takeBuild();
    expect(second).toMatchObject({ job_type: "image-5", attempt: 2 });
    const bytes = archive("g");
    expect((await put(agent, lease.lease_id, archive("f"))).status).toBe(409);
    expect((await put(other, second.lease_id, bytes)).status).toBe(200);
    await other.postBuild(second.lease_id, "result", { ...buildSuccess, digest: digest(97) });
    expect((await answer).status).toBe(200);
    const got = await agent.get(`/images/${digest(97)}/archive`);
    expect(got.text).toBe(new TextDecoder().decode(bytes));
  }),
  test("An image in a registry is named by its digest there", async (api) => {
    const { agent, end } = await building(api, "image-4");
    await end({ digest: digest(95), manifest_digest: digest(96) });
    expect(body(await agent.get(`/images/${digest(95)}`))).toMatchObject({
      registry_ref: `registry.example/team-image-4@${digest(96)}`,
    });
    expect((await agent.get(`/images/${digest(95)}/archive`)).status).toBe(404);
  }),
  test("An image that there is not is 404", async (api) => {
    const paths = [missingImage, `${missingImage}/archive`, "/images/x"];
    for (const path of [...paths, "/images/..%2F..%2Fetc/archive"]) {
      const reply = await api.agent().get(path);
      expect([path, reply.status]).toEqual([path, 404]);
      expect(problemOf(reply).detail).not.toBe("");
    }
  }),
]);

const missingPackage = {
  type: "dependency_error",
  message: "ERROR: No matching distribution found for numpy==2.3.4",
  phase: "startup",
} as const;

/** Lets an agent build every requested image until it is stopped. */
async function buildOnAndOn(agent: ScriptedAgent, stop: AbortSignal): Promise<void> {
  while (!stop.aborted) {
    for (const { lease_id } of (await agent.poll({ free_builds: 1, wait_s: 0.1 })).builds) {
      await agent.postBuild(lease_id, "result", buildSuccess);
    }
  }
}

async function lastBuild(api: Api, name: string): Promise<Build> {
  return Build.strict().parse(body(await api.get(`/job-types/${name}/build`)));
}

export const buildRows = on("with job types", [
  test("POST /job-types/{name}/build answers with the build result once an agent has built the image", async (api) => {
    const agent = api.agent();
    const { lease, answer } = await startBuild(api, agent, "build-8");
    expect(lease).toMatchObject({
      attempt: 1,
      job_type: "build-8",
      base_image: "python:3.13-slim",
      steps: [{ kind: "pip", packages: ["numpy==2.3.4"] }],
      repository: "registry.example/team-build-8",
      tags: ["latest"],
      timeout_s: 1800,
    });
    await agent.postBuild(lease.lease_id, "result", { ...buildSuccess, digest: digest(8) });
    const reply = await answer;
    expect(reply.status).toBe(200);
    expect(BuildResult.strict().parse(body(reply))).toEqual({
      status: "built",
      job_type: "build-8",
      version: `build-8@${digest(8)}`,
      digest: digest(8),
      image_ref: "registry.example/team-build-8:latest",
    });
  }),
  test("The version_tag of a build is the image's tag, and latest moves with it; one that is no semantic version is 400", async (api) => {
    const tag = "v1.0.0-alpha-b.7";
    const agent = api.agent();
    const { lease, answer } = await startBuild(api, agent, "build-9", tag);
    expect(lease.tags).toEqual([tag, "latest"]);
    await agent.postBuild(lease.lease_id, "result", buildSuccess);
    expect(body(await answer)).toMatchObject({
      image_ref: `registry.example/team-build-9:${tag}`,
    });
    const bad = ["", "v1.2", "v1.2.3.4", "V1.2.3", "v1.2.3%0A", "latest"];
    for (const wrong of [...bad, `v1.2.3-${"a".repeat(130)}`]) {
      const reply = await api.post(`/job-types/default/build?version_tag=${wrong}`);
      expectFault(reply, "version_tag");
    }
  }),
  test("A build without an agent that can work is 503 with Retry-After, and nothing is stored", async (api) => {
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
  }),
  test("Packages that cannot be installed give 422 with pip's error, a build that fails in the engine 502 with the engine's", async (api) => {
    const agent = api.agent();
    for (const [error, status] of [
      [missingPackage, 422],
      [broken, 502],
    ] as const) {
      const { lease, answer } = await startBuild(api, agent, "build-11");
      await agent.postBuild(lease.lease_id, "result", buildFailure(error));
      const reply = await answer;
      expect(reply.status).toBe(status);
      expect(problemOf(reply).error).toEqual(error);
      expect(problemOf(reply).detail).toContain(error.message);
      const ended = { status: "failed", error, digest: null, version: null };
      expect(await lastBuild(api, "build-11")).toMatchObject(ended);
    }
  }),
  test("A line of a dockerfile that fails gives 422 build_error; only what is built already is built from its first step on", async (api) => {
    const agent = api.agent();
    const name = "with-dockerfile";
    const error = {
      type: "build_error",
      message: "Step 2 of 2 (dockerfile line 3: RUN make) ended with exit code 2: no rule",
      phase: "startup",
    } as const;
    const ends = [
      [buildFailure(error), 422, false],
      [buildSuccess, 200, false],
      [buildFailure(error), 422, true],
      [buildSuccess, 200, false],
    ] as const;
    for (const [end, status, fresh] of ends) {
      const { lease, answer } = await startBuild(api, agent, name);
      expect(lease).toMatchObject({
        base_image: "python:3.12",
        steps: [
          { kind: "set", line: 2, change: "ENV A=1" },
          { kind: "run", line: 3, shown: "make", argv: ["/bin/sh", "-c", "make"] },
        ],
        fresh,
      });
      await agent.postBuild(lease.lease_id, "result", end);
      expect((await answer).status).toBe(status);
    }
    expect(await lastBuild(api, name)).toMatchObject({ status: "built", steps: 2 });
  }),
  test("A build and its log can be read during the build and after it", async (api) => {
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
    await agent.postBuild(lease.lease_id, "result", buildSuccess);
    await answer;
    expect(await lastBuild(api, "custom")).toMatchObject({
      status: "built",
      version: `custom@${digest(1)}`,
      digest: digest(1),
      error: null,
      log: "Collecting numpy\n",
    });
  }),
  test("Equal requests share one build; another tag is another build", async (api) => {
    const agent = api.agent();
    const { lease, answer } = await startBuild(api, agent, "build-12", "v1.0.0");
    const path = "/job-types/build-12/build?version_tag=v1.0.0";
    const others = Promise.all([1, 2, 3].map(() => api.post(path)));
    const latest = api.post("/job-types/build-12/build");
    const another = await api.agent().takeBuild();
    expect(another.tags).toEqual(["latest"]);
    expect((await agent.poll({ free_builds: 9, builds: [lease.lease_id] })).builds).toEqual([]);
    await agent.postBuild(another.lease_id, "result", { ...buildSuccess, digest: digest(12) });
    expect(body(await latest)).toMatchObject({ digest: digest(12) });
    await agent.postBuild(lease.lease_id, "result", buildSuccess);
    const first = await answer;
    expect(first.status).toBe(200);
    // A slow request may have arrived after the build had ended.
    const serving = new AbortController();
    const late = buildOnAndOn(agent, serving.signal);
    for (const one of await others) expect(body(one)).toEqual(body(first));
    serving.abort();
    await late;
  }),
  test("A build continues if its client hangs up", async (api) => {
    const agent = await api.connected();
    const hangUp = new AbortController();
    const path = `${api.url}/job-types/build-13/build`;
    const request = fetch(path, { method: "POST", signal: hangUp.signal });
    const lease = await agent.takeBuild();
    hangUp.abort();
    await expect(request).rejects.toThrow("aborted");
    expect((await agent.renew({ builds: [lease.lease_id] })).lost).toEqual([]);
    const reply = await agent.postBuild(lease.lease_id, "result", buildSuccess);
    expect(reply.status).toBe(200);
    expect(await lastBuild(api, "build-13")).toMatchObject({ status: "built" });
  }),
]);

/** Builds whose agent repeats a post, releases the build, leaves or is lost. */
export const buildLeaseRows = on("with job types", [
  test("A build whose agent never got the reply is delivered again to that agent", async (api) => {
    const agent = api.agent();
    const { lease, answer } = await startBuild(api, agent, "build-14");
    const again = await agent.poll({ free_builds: 1, builds: [] });
    expect(again.builds).toEqual([lease]);
    await agent.postBuild(lease.lease_id, "result", buildSuccess);
    await answer;
  }),
  test("An agent's posts about a build may be repeated; another body is 409, another token 403", async (api) => {
    const agent = api.agent();
    const { lease, answer } = await startBuild(api, agent, "build-14");
    const post = (what: string, content: object, by = agent) =>
      by.postBuild(lease.lease_id, what, content).then(({ status }) => status);
    expect(await post("logs", logChunk(0, "a"))).toBe(200);
    expect(await post("logs", logChunk(0, "a"))).toBe(200);
    expect(await post("logs", logChunk(0, "b"))).toBe(409);
    expect(await post("logs", logChunk(1024 * 1024, "b"))).toBe(413);
    expect(await post("result", buildSuccess, api.agent(agentTokens[1]))).toBe(403);
    expect(await post("result", { status: "built", digest: "sha256:1" })).toBe(400);
    expect(await post("result", buildSuccess)).toBe(200);
    expect(await post("result", buildSuccess)).toBe(200);
    expect(await post("result", buildFailure(broken))).toBe(409);
    expect(await post("release", { error: broken })).toBe(409);
    expect((await agent.postBuild(crypto.randomUUID(), "result", buildSuccess)).status).toBe(409);
    expect(body(await answer)).toMatchObject({ digest: buildSuccess.digest });
  }),
  test("A released build is tried once more, by any agent, and then fails with the error", async (api) => {
    const agent = api.agent();
    const { lease, answer } = await startBuild(api, agent, "build-15");
    await agent.postBuild(lease.lease_id, "release", { error: broken });
    const other = api.agent();
    const second = await other.takeBuild();
    expect(second).toMatchObject({ attempt: 2, job_type: "build-15" });
    expect(second.lease_id).not.toBe(lease.lease_id);
    expect((await agent.postBuild(lease.lease_id, "result", buildSuccess)).status).toBe(409);
    await other.postBuild(second.lease_id, "release", { error: broken });
    const reply = await answer;
    expect(reply.status).toBe(502);
    expect(problemOf(reply).error).toEqual(broken);
  }),
  test("If an agent leaves, its build goes to another agent at once", async (api) => {
    const agent = api.agent();
    const other = api.agent();
    await other.poll();
    const { lease, answer } = await startBuild(api, agent, "build-15");
    await agent.leave();
    const second = await other.takeBuild();
    expect(second).toMatchObject({ job_type: lease.job_type, attempt: 1 });
    await other.postBuild(second.lease_id, "result", buildSuccess);
    expect((await answer).status).toBe(200);
  }),
  test("A queued build ends with 503 if no agent is left to take it", async (api) => {
    const agent = await api.connected();
    const answer = api.post("/job-types/build-7/build");
    await expect
      .poll(async () => (await api.get("/job-types/build-7/build")).status, { timeout: 30_000 })
      .toBe(200);
    await agent.leave();
    const reply = await answer;
    expect(reply.status).toBe(503);
    expect(reply.headers.get("Retry-After")).not.toBeNull();
  }),
  ...on("with short leases", [
    test("A build whose lease expires is tried once more, and posts of its first agent are refused", async (api) => {
      const lost = api.agent();
      const { lease, answer } = await startBuild(api, lost, "science");
      const agent = api.agent();
      const second = await agent.takeBuild();
      expect(second).toMatchObject({ job_type: "science", attempt: 2 });
      expect((await lost.renew({ builds: [lease.lease_id] })).lost).toEqual([lease.lease_id]);
      expect((await lost.postBuild(lease.lease_id, "logs", logChunk(0, "x"))).status).toBe(409);
      expect((await lost.postBuild(lease.lease_id, "result", buildSuccess)).status).toBe(409);
      await agent.postBuild(second.lease_id, "result", { ...buildSuccess, digest: digest(2) });
      expect(body(await answer)).toMatchObject({ digest: digest(2) });
    }),
    test("A build that loses its agent twice fails", async (api) => {
      const { answer } = await startBuild(api, api.agent(), "poison");
      await api.agent().takeBuild();
      const witness = api.agent();
      const beat = setInterval(() => void witness.renew().catch(() => {}), 500);
      const reply = await answer.finally(() => clearInterval(beat));
      expect(reply.status).toBe(502);
      expect(problemOf(reply).error).toMatchObject({ type: "internal_error" });
    }),
  ]),
]);

async function jobType(api: Api, name: string): Promise<JobTypeView> {
  const reply = await api.get(`/job-types/${name}`);
  expect(reply.status).toBe(200);
  return JobTypeView.strict().parse(body(reply));
}

const imageExists = async (api: Api, name: string) => (await jobType(api, name)).image_exists;

export const jobTypeRows = on("with job types", [
  test("GET /job-types lists every configured job type, default first", async (api) => {
    const reply = await api.get("/job-types");
    expect(reply.status).toBe(200);
    const list = JobTypeList.parse(body(reply));
    const names = list.map(({ name }) => name);
    expect(names[0]).toBe("default");
    expect(names).toEqual(expect.arrayContaining(["versioned", "official", "custom", "labelled"]));
    expect(list[0]).toEqual({
      name: "default",
      preset: null,
      requirements: [],
      apt: [],
      npm: [],
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
  }),
  test("GET /job-types/{name} shows the configured limits", async (api) => {
    const custom = { memory_limit: "2g", cpu_limit: 1.5, requirements: [] };
    expect(await jobType(api, "custom")).toMatchObject(custom);
    expect(await jobType(api, "build-0")).toMatchObject({ requirements: ["numpy==2.3.4"] });
  }),
  test("A job type that is not configured is 404", async (api) => {
    for (const name of ["unknown", "hidden-1", "__proto__", "Default", "a%2Fb", "%00"]) {
      const path = `/job-types/${name}`;
      for (const reply of [
        await api.get(path),
        await api.get(`${path}/build`),
        await api.post(`${path}/build`),
      ]) {
        expect([name, reply.status]).toEqual([name, 404]);
      }
    }
  }),
  test("A job type of other tenants is nowhere: the answers are those for an unknown name", async (api) => {
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
  }),
  test("python_version of a built image is the one that the build has found in it", async (api) => {
    await buildType(api, api.agent(), "build-1", { python_version: "3.9.2" });
    expect(await jobType(api, "build-1")).toMatchObject({ python_version: "3.9.2" });
  }),
  test("Agents are asked about every image that jobs may need, built images by their digest", async (api) => {
    const agent = api.agent();
    const before = (await agent.poll()).images_wanted;
    expect(before).toEqual(
      expect.arrayContaining([defaultImage, "python:3.12-slim", "registry.example/science:7"]),
    );
    await buildType(api, agent, "build-2", { digest: digest(2) });
    for (const { images_wanted } of [await agent.poll(), await agent.renew()]) {
      expect(images_wanted).toEqual(expect.arrayContaining([...before, digest(2)]));
    }
  }),
  test("image_exists of a job type that installs nothing: whether a connected agent has its base image", async (api) => {
    expect(await imageExists(api, "default")).toBe(false);
    const agent = await agentWith(api, defaultImage);
    expect(await imageExists(api, "default")).toBe(true);
    expect(await imageExists(api, "custom")).toBe(false);
    const engine = { available: false, version: null, runtimes: [] };
    await agent.poll({ images: [defaultImage], engine });
    expect(await imageExists(api, "default")).toBe(false);
    await agent.leave();
    expect(await imageExists(api, "default")).toBe(false);
  }),
  test("image_exists of a job type with requirements: whether a connected agent has its built image", async (api) => {
    const agent = await agentWith(api, defaultImage);
    expect(await imageExists(api, "build-3")).toBe(false);
    await buildType(api, agent, "build-3", { digest: digest(3) });
    expect(await imageExists(api, "build-3")).toBe(true);
    await agent.poll({ images: [defaultImage] });
    expect(await imageExists(api, "build-3")).toBe(false);
    await agentWith(api, digest(3));
    expect(await imageExists(api, "build-3")).toBe(true);
  }),
  test("A poll that is answered late does not restore an older list of the agent's images", async (api) => {
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
  }),
  test("The first job of a type that is not built has its image built; it waits, says for what, and runs on it", async (api) => {
    const agent = await agentWith(api, defaultImage);
    const { job_id, message } = await api.submit({ job_type: "build-0" });
    expect(message).toBe("Waits for the image of build-0.");
    const sync = api.post("/execute", { code: "1", job_type: "build-0" });
    const lease = await agent.takeBuild({ images: [defaultImage] });
    expect(lease).toMatchObject({ job_type: "build-0", tags: ["latest"] });
    await agent.postBuild(lease.lease_id, "logs", { ...logChunk(0, "pip"), step: 1 });
    expect(body(await api.get(`/jobs/${job_id}/result`))).toMatchObject({
      message: "Waits for the image of build-0: step 1 of 1, pip.",
    });
    await agent.postBuild(lease.lease_id, "result", { ...buildSuccess, digest: digest(9) });
    const images = [defaultImage, digest(9)];
    for (let ended = 0; ended < 2;) {
      for (const { lease_id, image } of (await agent.poll({ images, wait_s: 2 })).jobs) {
        expect(image).toBe(digest(9));
        await agent.result(lease_id);
        ended++;
      }
    }
    expect(body(await sync)).toMatchObject({ success: true });
    expect(await api.job(job_id)).toMatchObject({ status: "succeeded" });
  }),
  test("A module that is missing has a warning that says how to get it", async (api) => {
    const warningsOf = async (module: string) => {
      const { agent, job_id, lease_id } = await working(api);
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
      "Job type default has no module yaml. If it comes from a package (pyyaml): an operator adds that to the requirements of a job type.",
    ]);
    expect(await warningsOf("pandas")).toEqual([
      'Job type default has no module pandas. If it comes from a package (pandas): an operator adds preset = "science" to a job type.',
    ]);
    expect(await warningsOf("IPython")).toEqual([expect.stringContaining("display(value)")]);
    expect(await warningsOf("numpy.missing")).toBeUndefined();
  }),
  ...on("in production", [
    test("In production mode a submission whose job type has no built image is refused, and says what to do", async (api) => {
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
    }),
    test("In production mode a job type that is built runs", async (api) => {
      const agent = api.agent();
      await buildType(api, agent, "default", { digest: digest(7) });
      expect(await imageExists(api, "default")).toBe(true);
      const { job_id } = await api.submit();
      const { jobs } = await agent.poll({ images: [digest(7)] });
      expect(jobs).toMatchObject([{ execution_id: job_id, image: digest(7) }]);
      await agent.result(jobs[0]?.lease_id ?? "");
    }),
  ]),
]);
