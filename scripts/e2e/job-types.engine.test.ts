import { join } from "node:path";
import { afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { testEngine } from "../../agent/sandbox/testing/engine.ts";
import { type PackageIndex, startIndex } from "../../agent/sandbox/testing/package-index.ts";
import { bridgeAddress, rawEngine, removeImages } from "../../agent/sandbox/testing/raw-engine.ts";
import { writeWheels } from "../../agent/sandbox/testing/wheel.ts";
import type { AgentProcess } from "../../agent/testing/agent-process.ts";
import { startNode, startNodeIn } from "../../api/testing/start-node.ts";
import { type RunningService, startWorker } from "../../api/testing/start-worker.ts";
import { BuildWorld } from "../testing/build-world.ts";

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

let world: BuildWorld;
beforeAll(testEngine);
beforeEach(() => {
  world = new BuildWorld();
});
afterEach(() => world.close());

describe.each<[string, (vars: Record<string, string>) => Promise<RunningService>]>([
  ["api/node.ts", startNode],
  ["api/worker.ts in workerd", startWorker],
])("%s", (_name, start) => {
  test("a job type is built, and its jobs run on that image without a network", async () => {
    writeWheels(world.folder, probe(42));
    await world.use(start({ ...world.apiVars, AIRLOCK_MAX_IMAGE_BYTES: "" }));
    await world.addAgent();
    expect(await world.jobType("default")).toMatchObject({ image_exists: true });
    expect(await world.jobType("science")).toMatchObject({
      image_exists: false,
      python_version: "3.13",
    });
    const before = await world.execute("science", printAnswer);
    expect(before.error).toMatchObject({
      type: "import_error",
      message: expect.stringContaining("POST /job-types/science/build") as string,
    });

    const made = await world.build("science", "v1.2.3");
    expect(made).toEqual({
      status: "built",
      job_type: "science",
      version: `science@${made.digest}`,
      digest: expect.stringMatching(/^sha256:[0-9a-f]{64}$/) as string,
      image_ref: `${world.prefix}-science:v1.2.3`,
    });
    for (const tag of ["v1.2.3", "latest"]) {
      const { Id } = await rawEngine.getImage(`${world.prefix}-science:${tag}`).inspect();
      expect(Id).toBe(made.digest);
    }
    const { status, log } = await world.lastBuild("science");
    expect({ status, log }).toEqual({
      status: "built",
      log: expect.stringMatching(/Successfully installed airlock_probe-42\.0/) as string,
    });
    expect(log).toMatch(
      (await hasContainerdStore())
        ? /The image stays on this host: an engine with containerd's image store .*set image_registry/
        : /Stored the image for other agents: \d+ bytes/,
    );
    expect(await world.jobType("science")).toMatchObject({ image_exists: true });

    const { job_id } = await world.submit("science", printAnswer);
    expect(await world.result(job_id)).toMatchObject({
      status: "succeeded",
      stdout: "42\n",
      job_version: "v1.2.3",
      job_ref: `science@${made.digest}`,
    });
  });

  test("a build that fails answers with pip's message", async () => {
    await world.use(start(world.apiVars));
    await world.addAgent();
    const refusal = await world.build("broken");
    expect(refusal).toMatchObject({
      status: 422,
      error: {
        type: "dependency_error",
        message: expect.stringContaining(
          "No matching distribution found for no-such-package==9",
        ) as string,
      },
    });
    expect((await world.lastBuild("broken")).log).toContain(
      "ERROR: No matching distribution found",
    );
    expect(await world.images()).toEqual([]);
  });
});

test("a rebuilt job type runs on its new image; old records keep theirs", async () => {
  writeWheels(world.folder, probe(1));
  await world.use(startNode(world.apiVars));
  await world.addAgent();
  const first = await world.build("science", "v1.0.0");
  const { job_id } = await world.submit("science", printAnswer);
  expect(await world.result(job_id)).toMatchObject({ stdout: "1\n" });
  writeWheels(world.folder, probe(2));
  const second = await world.build("science");
  expect(second.digest).not.toBe(first.digest);
  const after = await world.submit("science", printAnswer);
  expect(await world.result(after.job_id)).toMatchObject({
    stdout: "2\n",
    job_version: "latest",
    job_ref: second.version,
  });
  expect(await world.result(job_id)).toMatchObject({
    job_version: "v1.0.0",
    job_ref: first.version,
  });
});

test("an image that is removed is missed within seconds, and a build brings it back", async () => {
  writeWheels(world.folder, probe(3));
  await world.use(startNode(world.apiVars));
  await world.addAgent();
  const { digest } = await world.build("science");
  expect(await world.imageExists("science")).toBe(true);
  await removeImages(digest);
  await expect.poll(() => world.imageExists("science"), { timeout: 120_000 }).toBe(false);

  const refusal = await world.execute("science", printAnswer);
  expect(refusal).toMatchObject({ status: 503, error: { type: "service_unavailable" } });
  const { job_id } = await world.submit("science", printAnswer);
  const waiting = await world.inProgress(job_id);
  expect(waiting.message).toContain("POST /job-types/science/build");
  const again = await world.build("science");
  expect(await world.result(job_id)).toMatchObject({ stdout: "3\n", job_ref: again.version });
});

test("two agents on one engine both run what one of them has built", async () => {
  writeWheels(world.folder, probe(4));
  await world.use(startNode(world.apiVars));
  await Promise.all([
    world.addAgent({ AIRLOCK_MAX_WORKERS: "1", AIRLOCK_AGENT_NAME: `${world.prefix}-a` }),
    world.addAgent({ AIRLOCK_MAX_WORKERS: "1", AIRLOCK_AGENT_NAME: `${world.prefix}-b` }),
  ]);
  const { version } = await world.build("science");
  // Each has one slot: only if both have the image does code of both jobs run at once.
  const lasting = "import airlock_probe, time; time.sleep(600)";
  const jobs = await Promise.all([1, 2].map(() => world.submit("science", lasting)));
  const records = () => Promise.all(jobs.map(({ job_id }) => world.record(job_id)));
  const begun = { status: "running", job_ref: version };
  await expect.poll(records, { timeout: 120_000 }).toMatchObject([begun, begun]);
  for (const { job_id } of jobs) await world.cancel(job_id);
});

describe("a running build", () => {
  let index: PackageIndex;
  let open: () => void;

  /** An agent that installs from an index which does not answer before it is told to. */
  function addSlowAgent(): Promise<AgentProcess> {
    return world.addAgent({
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
    const data = join(world.folder, "data");
    const first = await world.use(startNodeIn(data, world.apiVars));
    await addSlowAgent();
    const answer = world.build("science").catch(() => "cut off");
    await asked();
    first.child.kill("SIGKILL");
    expect(await answer).toBe("cut off");

    const { port } = new URL(world.url);
    await world.use(startNodeIn(data, { ...world.apiVars, AIRLOCK_PORT: port }));
    expect(await world.lastBuild("science")).toMatchObject({ status: "running" });
    open();
    await expect
      .poll(async () => (await world.lastBuild("science")).status, { timeout: 120_000 })
      .toBe("built");
    expect(await world.execute("science", printAnswer)).toMatchObject({ stdout: "5\n" });
  });

  test("is tried once more when its agent is killed, and nothing is left of the first", async () => {
    await world.use(startNode(world.apiVars));
    const first = await addSlowAgent();
    const answer = world.build("science");
    await asked();
    first.process.kill("SIGKILL");
    await first.exit;
    expect(await world.containers()).toHaveLength(1);
    open();
    await addSlowAgent();
    expect(await answer).toMatchObject({ status: "built" });
    expect(await world.containers()).toEqual([]);
    expect(await world.execute("science", printAnswer)).toMatchObject({ stdout: "5\n" });
  });

  test("shows its log, and leaves the agent's slots to jobs", async () => {
    await world.use(startNode(world.apiVars));
    const agent = await addSlowAgent();
    const answer = world.build("science");
    await asked();
    await expect
      .poll(async () => (await world.lastBuild("science")).log, { timeout: 120_000 })
      .toContain("Looking in indexes");
    expect(await world.execute("default", "print('meanwhile')")).toMatchObject({
      stdout: "meanwhile\n",
    });
    agent.process.kill("SIGTERM");
    open();
    expect(await answer).toMatchObject({ status: "built" });
    expect(await agent.exit).toBe(0);
  });
});
