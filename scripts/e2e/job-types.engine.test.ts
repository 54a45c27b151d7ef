import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { testEngine } from "../../agent/sandbox/testing/engine.ts";
import { type PackageIndex, startIndex } from "../../agent/sandbox/testing/package-index.ts";
import {
  bridgeAddress,
  imagesOf,
  jobContainersOf,
  rawEngine,
  removeImages,
} from "../../agent/sandbox/testing/raw-engine.ts";
import { writeWheels } from "../../agent/sandbox/testing/wheel.ts";
import { startWorker } from "../../api/testing/start-worker.ts";
import type { InProgressResult } from "../../shared/wire/execution.ts";
import { build, lastBuild, readJobType } from "../testing/builds.ts";
import {
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

/** Whether this engine calls images by the digest of their manifest. */
async function hasContainerdStore(): Promise<boolean> {
  const { DriverStatus } = (await rawEngine.info()) as { DriverStatus: unknown };
  return JSON.stringify(DriverStatus).includes("io.containerd.snapshotter");
}

let wheels: string;
let service: TestService;
beforeAll(testEngine);
beforeEach(() => {
  wheels = mkdtempSync(join(tmpdir(), "airlock-wheels-"));
});
afterEach(async () => {
  await service?.[Symbol.asyncDispose]();
  rmSync(wheels, { recursive: true });
});

type Start = (options: ServiceOptions) => Promise<TestService>;

/** Its agents install from the folder of wheels. */
async function startService(start: Start = startTestService, vars: Variables = {}): Promise<void> {
  service = await start({
    api: {
      // Most tests have one host, where it would only take its time.
      AIRLOCK_MAX_IMAGE_BYTES: "0",
      // Longer than a busy machine takes to start an API or an agent again.
      AIRLOCK_LEASE_TTL_S: "15",
      AIRLOCK_LIVENESS_S: "15",
      AIRLOCK_POLL_WAIT_S: "2",
      AIRLOCK_JOB_TYPES: JSON.stringify({
        science: { requirements: ["airlock_probe"], preload: ["airlock_probe"] },
        broken: { requirements: ["no-such-package==9"] },
      }),
      ...vars,
    },
    agents: { AIRLOCK_PIP_FIND_LINKS: wheels },
  });
}

const submitScience = (code: string) => service.submit(code, {}, { job_type: "science" });
const executeScience = () => service.execute(printAnswer, { job_type: "science" });
const imageExists = async () => (await readJobType(service, "science")).image_exists;

describe.each<[string, Start]>([
  ["api/node.ts", startTestService],
  ["api/worker.ts in workerd", (options) => startTestServiceOn(startWorker, options)],
])("%s", (_name, start) => {
  test("a job type is built, and its jobs run on that image without a network", async () => {
    writeWheels(wheels, probe(42));
    await startService(start, { AIRLOCK_MAX_IMAGE_BYTES: "" });
    await service.startAgent();
    expect(await readJobType(service, "default")).toMatchObject({ image_exists: true });
    expect(await readJobType(service, "science")).toMatchObject({
      image_exists: false,
      python_version: "3.13",
    });
    const before = await executeScience();
    expect(before.error).toMatchObject({
      type: "import_error",
      message: expect.stringContaining("POST /job-types/science/build") as string,
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
    const { status, log } = await lastBuild(service, "science");
    expect({ status, log }).toEqual({
      status: "built",
      log: expect.stringMatching(/Successfully installed airlock_probe-42\.0/) as string,
    });
    expect(log).toMatch(
      (await hasContainerdStore())
        ? /The image stays on this host: an engine with containerd's image store .*set image_registry/
        : /Stored the image for other agents: \d+ bytes/,
    );
    expect(await readJobType(service, "science")).toMatchObject({ image_exists: true });

    const id = await submitScience(printAnswer);
    expect(await service.ended(id)).toMatchObject({
      status: "succeeded",
      stdout: "42\n",
      job_version: "v1.2.3",
      job_ref: `science@${made.digest}`,
    });
  });

  test("a build that fails answers with pip's message", async () => {
    await startService(start);
    await service.startAgent();
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
    expect(await imagesOf(service.name)).toEqual([]);
  });
});

test("a rebuilt job type runs on its new image; old records keep theirs", async () => {
  writeWheels(wheels, probe(1));
  await startService();
  await service.startAgent();
  const first = await build(service, "science", "v1.0.0");
  const id = await submitScience(printAnswer);
  expect(await service.ended(id)).toMatchObject({ stdout: "1\n" });
  writeWheels(wheels, probe(2));
  const second = await build(service, "science");
  expect(second.digest).not.toBe(first.digest);
  const after = await submitScience(printAnswer);
  expect(await service.ended(after)).toMatchObject({
    stdout: "2\n",
    job_version: "latest",
    job_ref: second.version,
  });
  expect(await service.ended(id)).toMatchObject({
    job_version: "v1.0.0",
    job_ref: first.version,
  });
});

test("an image that is removed is missed within seconds, and a build brings it back", async () => {
  writeWheels(wheels, probe(3));
  await startService();
  await service.startAgent();
  const { digest } = await build(service, "science");
  expect(await imageExists()).toBe(true);
  await removeImages(digest);
  await expect.poll(imageExists, { timeout: 120_000 }).toBe(false);

  const refusal = await executeScience();
  expect(refusal).toMatchObject({ status: 503, error: { type: "service_unavailable" } });
  const id = await submitScience(printAnswer);
  const waiting = await service.send<InProgressResult>("GET", `/jobs/${id}/result`);
  expect(waiting.json.message).toContain("POST /job-types/science/build");
  const again = await build(service, "science");
  expect(await service.ended(id)).toMatchObject({ stdout: "3\n", job_ref: again.version });
});

test("two agents on one engine both run what one of them has built", async () => {
  writeWheels(wheels, probe(4));
  await startService();
  const oneSlot = { AIRLOCK_MAX_WORKERS: "1" };
  await Promise.all(["a", "b"].map((name) => service.startAgent(name, oneSlot)));
  const { version } = await build(service, "science");
  // Each has one slot: only if both have the image does code of both jobs run at once.
  const lasting = "import airlock_probe, time; time.sleep(600)";
  const jobs = await Promise.all([1, 2].map(() => submitScience(lasting)));
  const records = () => Promise.all(jobs.map(service.record));
  const begun = { status: "running", job_ref: version };
  await expect.poll(records, { timeout: 120_000 }).toMatchObject([begun, begun]);
});

describe("a running build", () => {
  let index: PackageIndex;
  let open: () => void;

  /** An agent that installs from an index which does not answer before it is told to. */
  function addSlowAgent(): Promise<TestAgent> {
    return service.startAgent("agent", {
      AIRLOCK_PIP_INDEX_URL: index.url,
      AIRLOCK_PIP_FIND_LINKS: "",
      // Told to stop, it builds on however slow its host is.
      AIRLOCK_DRAIN_GRACE_S: "60",
    });
  }

  beforeEach(async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    open = resolve;
    const address = await bridgeAddress();
    index = await startIndex({ address, wheels: [probe(5)], opens: promise });
  });
  afterEach(() => index.close());

  /** Until a build has asked the index. */
  const asked = async () => {
    await expect.poll(() => index.requests.length, { timeout: 120_000 }).toBeGreaterThan(0);
  };

  test("survives a kill of the API and the loss of its client", async () => {
    await startService();
    await addSlowAgent();
    const answer = build(service, "science").catch(() => "cut off");
    await asked();
    await service.api().close();
    expect(await answer).toBe("cut off");

    await service.startApi();
    expect(await lastBuild(service, "science")).toMatchObject({ status: "running" });
    open();
    await expect
      .poll(async () => (await lastBuild(service, "science")).status, { timeout: 120_000 })
      .toBe("built");
    expect(await executeScience()).toMatchObject({ stdout: "5\n" });
  });

  test("is tried once more when its agent is killed, and nothing is left of the first", async () => {
    await startService();
    const first = await addSlowAgent();
    const answer = build(service, "science");
    await asked();
    first.process.kill("SIGKILL");
    await first.exit;
    expect(await jobContainersOf(first.name)).toHaveLength(1);
    open();
    await addSlowAgent();
    expect(await answer).toMatchObject({ status: "built" });
    expect(await jobContainersOf(first.name)).toEqual([]);
    expect(await executeScience()).toMatchObject({ stdout: "5\n" });
  });

  test("shows its log, and leaves the agent's slots to jobs", async () => {
    await startService();
    const agent = await addSlowAgent();
    const answer = build(service, "science");
    await asked();
    await expect
      .poll(async () => (await lastBuild(service, "science")).log, { timeout: 120_000 })
      .toContain("Looking in indexes");
    expect(await service.execute("print('meanwhile')")).toMatchObject({
      stdout: "meanwhile\n",
    });
    agent.process.kill("SIGTERM");
    open();
    expect(await answer).toMatchObject({ status: "built" });
    expect(await agent.exit).toBe(0);
  });
});
