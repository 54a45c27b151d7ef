import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { testEngine } from "../../agent/testing/engine.ts";
import { startIndex, writeWheels } from "../../agent/testing/package-index.ts";
import {
  bridgeAddress,
  imagesOf,
  jobContainersOf,
  rawEngine,
  removeImages,
} from "../../agent/testing/raw-engine.ts";
import { startWorker } from "../../api/testing/start-worker.ts";
import { isLab, tempFolder } from "../../shared/testing/test-file.ts";
import type { InProgressResult } from "../../shared/wire/executions.ts";
import {
  build,
  lastBuild,
  readJobType,
  type ServiceOptions,
  startTestService,
  startTestServiceOn,
  type TestAgent,
  type TestService,
  type Variables,
} from "../testing/test-service.ts";

const probe = (answer: number) => ({
  name: "airlock_probe",
  version: `${answer}.0`,
  source: `answer = ${answer}\n`,
});
const printAnswer = "import airlock_probe; print(airlock_probe.answer)";

/** What the log says of an image for other agents: an engine may call images by the digest of their manifest. */
async function wordsOfSharing(): Promise<RegExp> {
  const { DriverStatus } = (await rawEngine.info()) as { DriverStatus: unknown };
  return JSON.stringify(DriverStatus).includes("io.containerd.snapshotter")
    ? /The image stays on this host: an engine with containerd's image store .*set image_registry/
    : /Stored the image for other agents: \d+ bytes/;
}

let wheels: string;
beforeAll(async () => {
  await testEngine();
  wheels = tempFolder();
});

type Start = (options: ServiceOptions) => Promise<TestService>;

/** Its agents install from the folder of wheels. */
function startService(start: Start, vars: Variables = {}): Promise<TestService> {
  return start({
    api: {
      // Most tests have one host, where it would only take its time.
      AIRLOCK_MAX_IMAGE_BYTES: "0",
      AIRLOCK_POLL_WAIT_S: "2",
      AIRLOCK_TENANT_JOB_TYPES: "1",
      AIRLOCK_JOB_TYPES: JSON.stringify({
        science: { requirements: ["airlock_probe"], preload: ["airlock_probe"] },
        rebuilt: { requirements: ["airlock_probe"] },
        unbuilt: { requirements: ["airlock_probe"] },
        removed: { requirements: ["airlock_probe"] },
        shared: { requirements: ["airlock_probe"] },
        broken: { requirements: ["no-such-package==9"] },
      }),
      ...vars,
    },
    agents: {
      AIRLOCK_PIP_FIND_LINKS: wheels,
      AIRLOCK_AGENT_TENANT_BUILDS: "true",
      // A mother would unpack all files of each image.
      AIRLOCK_CONTAINER_BACKEND: "engine",
    },
  });
}

// A busy machine's engine takes its time.
const execute = (service: TestService, jobType: string) =>
  service.execute(printAnswer, { job_type: jobType, startup_timeout: 600 });

// In workerd in the engine tier, where it also stores what it builds for other agents and forks its jobs; on Node in
// the lab.
const [name, start, stores]: [string, Start, boolean] = isLab
  ? ["api/node.ts", startTestService, false]
  : ["api/worker.ts in workerd", (options) => startTestServiceOn(startWorker, options), true];
describe.concurrent(`on ${name}`, () => {
  /** They share a service. */
  const one = { concurrent: false };
  const oneSlot = { AIRLOCK_MAX_WORKERS: "1" };
  let service: TestService;
  beforeAll(async () => {
    service = await startService(start, stores ? { AIRLOCK_MAX_IMAGE_BYTES: "" } : {});
    await service.startAgent("agent", stores ? { AIRLOCK_CONTAINER_BACKEND: "" } : oneSlot);
  });
  afterEach(() => readdirSync(wheels).forEach((name) => rmSync(join(wheels, name))));
  afterAll(() => service?.[Symbol.asyncDispose]());
  const submit = (jobType: string, code = printAnswer) =>
    service.submit(code, {}, { job_type: jobType });

  test("a build that fails answers with pip's message", one, async () => {
    const refusal = await build(service, "broken");
    expect(refusal).toMatchObject({
      status: 422,
      error: {
        type: "dependency_error",
        message: expect.stringContaining(
          "No matching distribution found for no-such-package==9",
        ) as string,
      },
    });
    expect((await lastBuild(service, "broken")).log).toContain(
      "ERROR: No matching distribution found",
    );
    expect(await imagesOf(`${service.name}-broken`)).toEqual([]);
  });

  test("a job type is built, and its jobs run on that image without a network", one, async () => {
    writeWheels(wheels, probe(42));
    expect(await readJobType(service, "default")).toMatchObject({ image_exists: true });
    expect(await readJobType(service, "science")).toMatchObject({
      image_exists: false,
      python_version: "3.13",
    });
    const made = await build(service, "science", "v1.2.3");
    expect(made).toEqual({
      status: "built",
      job_type: "science",
      version: `science@${made.digest}`,
      digest: expect.stringMatching(/^sha256:[0-9a-f]{64}$/) as string,
      image_ref: `${service.name}-science:v1.2.3`,
    });
    for (const tag of ["v1.2.3", "latest"]) {
      const { Id } = await rawEngine.getImage(`${service.name}-science:${tag}`).inspect();
      expect(Id).toBe(made.digest);
    }
    const { status, log, step, steps } = await lastBuild(service, "science");
    expect({ status, log, step, steps }).toEqual({
      status: "built",
      step: 1,
      steps: 1,
      log: expect.stringMatching(/Successfully installed airlock_probe-42\.0/) as string,
    });
    expect(log).toMatch(stores ? await wordsOfSharing() : /Successfully/);
    expect(await readJobType(service, "science")).toMatchObject({ image_exists: true });

    expect(await service.ended(await submit("science"))).toMatchObject({
      status: "succeeded",
      stdout: "42\n",
      job_version: "v1.2.3",
      job_ref: `science@${made.digest}`,
    });
  });

  test("the first job of a type has its image built, and runs on it", one, async () => {
    writeWheels(wheels, probe(6));
    const id = await submit("unbuilt");
    const waiting = await service.send<InProgressResult>("GET", `/jobs/${id}/result`);
    expect(waiting.json.message).toMatch(/^Waits for the image of unbuilt/);
    const { status, stdout, job_ref } = await service.ended(id);
    expect({ status, stdout }).toEqual({ status: "succeeded", stdout: "6\n" });
    expect(job_ref).toBe((await lastBuild(service, "unbuilt")).version);
  });

  test("a tenant makes a job type, whose image the first job has built, and removes it", async () => {
    writeWheels(wheels, probe(7));
    const path = "/job-types/default.own";
    const made = await service.send("PUT", path, { requirements: ["airlock_probe"], timeout: 20 });
    expect(made).toMatchObject({ status: 200, json: { name: "default.own", timeout: 20 } });
    const id = await submit("default.own");
    const { status, stdout, job_ref } = await service.ended(id);
    expect({ status, stdout }).toEqual({ status: "succeeded", stdout: "7\n" });
    expect(job_ref).toBe((await lastBuild(service, "default.own")).version);
    expect((await service.send("DELETE", path)).status).toBe(200);
    expect((await service.send("GET", path)).status).toBe(404);
  });

  // What follows is the agents' work, whatever the API runs on.
  if (stores) return;

  test("a rebuilt job type runs on its new image; old records keep theirs", one, async () => {
    writeWheels(wheels, probe(1));
    const first = await build(service, "rebuilt", "v1.0.0");
    const id = await submit("rebuilt");
    expect(await service.ended(id)).toMatchObject({ stdout: "1\n" });
    writeWheels(wheels, probe(2));
    const second = await build(service, "rebuilt");
    expect(second.digest).not.toBe(first.digest);
    expect(await service.ended(await submit("rebuilt"))).toMatchObject({
      stdout: "2\n",
      job_version: "latest",
      job_ref: second.version,
    });
    expect(await service.ended(id)).toMatchObject({
      job_version: "v1.0.0",
      job_ref: first.version,
    });
  });

  test(
    "an image that is removed is missed within seconds, and the next job has it built again",
    one,
    async () => {
      writeWheels(wheels, probe(3));
      const { digest } = await build(service, "removed");
      const imageExists = async () => (await readJobType(service, "removed")).image_exists;
      expect(await imageExists()).toBe(true);
      await removeImages(digest);
      await expect.poll(imageExists, { timeout: 120_000 }).toBe(false);

      const id = await submit("removed");
      const waiting = await service.send<InProgressResult>("GET", `/jobs/${id}/result`);
      expect(waiting.json.message).toMatch(/Waits for the image of removed\.$/);
      const { stdout, job_ref } = await service.ended(id);
      expect(stdout).toBe("3\n");
      expect(job_ref).toBe((await lastBuild(service, "removed")).version);
      expect(job_ref).not.toBe(`removed@${digest}`);
    },
  );

  test("two agents on one engine both run what one of them has built", one, async () => {
    writeWheels(wheels, probe(4));
    await service.startAgent("second", oneSlot);
    const { version } = await build(service, "shared");
    // Each has one slot: only if both have the image does code of both jobs run at once.
    const lasting = "import airlock_probe, time; time.sleep(600)";
    const jobs = await Promise.all([1, 2].map(() => submit("shared", lasting)));
    const records = () => Promise.all(jobs.map(service.record));
    const begun = { status: "running", job_ref: version };
    await expect.poll(records, { timeout: 120_000 }).toMatchObject([begun, begun]);
    for (const id of jobs) await service.send("POST", `/jobs/${id}/cancel`);
  });
});

describe.concurrent("a running build", () => {
  /** A build at an agent that installs from an index which does not answer before it is told to. */
  async function startSlowBuild() {
    const { promise: opens, resolve: open } = Promise.withResolvers<void>();
    const index = await startIndex({ address: await bridgeAddress(), wheels: [probe(5)], opens });
    // Longer than a busy machine takes to start an API or an agent again.
    const vars = { AIRLOCK_LEASE_TTL_S: "15", AIRLOCK_LIVENESS_S: "15" };
    const service = await startService(startTestService, vars);
    const addAgent = (): Promise<TestAgent> =>
      service.startAgent("agent", {
        AIRLOCK_PIP_INDEX_URL: index.url,
        AIRLOCK_PIP_FIND_LINKS: "",
        // Told to stop, it builds on however slow its host is.
        AIRLOCK_DRAIN_GRACE_S: "60",
      });
    const agent = await addAgent();
    const answer = build(service, "science").catch(() => "cut off");
    await expect.poll(() => index.requests.length, { timeout: 120_000 }).toBeGreaterThan(0);
    return {
      service,
      agent,
      addAgent,
      answer,
      open,
      [Symbol.asyncDispose]: async () => {
        await service[Symbol.asyncDispose]();
        index.close();
      },
    };
  }

  test("survives a kill of the API and the loss of its client", async () => {
    await using slow = await startSlowBuild();
    const { service, answer, open } = slow;
    await service.api().close();
    expect(await answer).toBe("cut off");

    await service.startApi();
    expect(await lastBuild(service, "science")).toMatchObject({ status: "running" });
    open();
    await expect
      .poll(async () => (await lastBuild(service, "science")).status, { timeout: 120_000 })
      .toBe("built");
    expect(await execute(service, "science")).toMatchObject({ stdout: "5\n" });
  });

  test("is tried once more when its agent is killed, and nothing is left of the first", async () => {
    await using slow = await startSlowBuild();
    const { service, agent: first, addAgent, answer, open } = slow;
    first.process.kill("SIGKILL");
    await first.exit;
    expect(await jobContainersOf(first.name)).toHaveLength(1);
    open();
    await addAgent();
    expect(await answer).toMatchObject({ status: "built" });
    expect(await jobContainersOf(first.name)).toEqual([]);
    expect(await execute(service, "science")).toMatchObject({ stdout: "5\n" });
  });

  test("shows its log, and leaves the agent's slots to jobs", async () => {
    await using slow = await startSlowBuild();
    const { service, agent, answer, open } = slow;
    await expect
      .poll(async () => (await lastBuild(service, "science")).log, { timeout: 120_000 })
      .toContain("Looking in indexes");
    expect(await service.execute("print('meanwhile')")).toMatchObject({ stdout: "meanwhile\n" });
    agent.process.kill("SIGTERM");
    open();
    expect(await answer).toMatchObject({ status: "built" });
    expect(await agent.exit).toBe(0);
  });
});
