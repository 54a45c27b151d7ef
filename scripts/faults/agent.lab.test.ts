import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { AgentProcess } from "../../agent/testing/agent-process.ts";
import { Config } from "../../shared/config/config.ts";
import { findBaseImage } from "../setup/images/base-image.ts";
import { connect } from "../setup/engine/connect.ts";
import { startTestService, type TestService } from "../testing/test-service.ts";
import { leaseTtlS, shortLeases } from "./short-leases.ts";
import { containersOf, jobContainersOf } from "../../agent/sandbox/testing/raw-engine.ts";
import { makeCodeSignal } from "../../agent/sandbox/testing/code-signal.ts";

const docker = connect(process.env["AIRLOCK_DOCKER_HOST"] || "unix:///var/run/docker.sock");

let service: TestService;
beforeEach(async () => {
  service = await startTestService({ api: shortLeases });
});
afterEach(() => service[Symbol.asyncDispose]());

async function kill(agent: AgentProcess): Promise<void> {
  agent.process.kill("SIGKILL");
  await agent.exit;
}

const signal = makeCodeSignal();

/** Prints which run of it this is, and goes on until the signal. */
const waits = `
import uuid
run = str(uuid.uuid4())
open("run.txt", "w").write(run)
print(run, flush=True)
${signal.wait}`;

test("fault 1: after kill -9 of the agent while code runs, the next agent on its host runs it again at once and removes the first container", async () => {
  // Far longer than this test takes: no lease ends by itself.
  await using service = await startTestService({
    api: { ...shortLeases, AIRLOCK_LEASE_TTL_S: "3600" },
  });
  const first = await service.startAgent();
  const { name } = first;
  const id = await service.submit(waits);
  await service.untilBegun(id);
  const [left] = await containersOf(name);
  await kill(first);
  await service.startAgent();
  await service.untilBegun(id, 2);
  expect(await containersOf(name)).not.toContain(left);
  await signal.sendTo(name);
  const record = await service.ended(id);
  expect(record).toMatchObject({ status: "succeeded", artifacts: [{ name: "run.txt" }] });
  const { json } = await service.send("GET", `/executions/${id}?view=all`);
  expect(json["attempts"]).toMatchObject([
    { attempt: 1, agent: name, outcome: "agent_crashed" },
    { attempt: 2, agent: name, outcome: "result" },
  ]);
  const file = await fetch(`${service.url}/jobs/${id}/artifacts/run.txt`);
  expect(`${await file.text()}\n`).toBe(record.stdout);
  const ledger = await service.ledger([{ id, ends: ["succeeded"] }]);
  expect(ledger).toMatchObject({ retried: 1, faults: [] });
});

test("fault 14: a job that kills its agent every time: one dead letter after two attempts", async () => {
  let agent = await service.startAgent();
  const id = await service.submit("import time; time.sleep(600)", {}, { timeout: 900 });
  for (const attempt of [1, 2]) {
    await service.untilBegun(id, attempt);
    await kill(agent);
    agent = await service.startAgent();
  }
  expect(await service.ended(id)).toMatchObject({
    status: "failed",
    error: { type: "internal_error" },
  });
  expect((await service.send("GET", "/dlq")).json).toMatchObject({
    count: 1,
    items: [{ job_id: id, error_type: "internal_error" }],
  });
  const next = await service.submit("print('on')");
  expect(await service.ended(next)).toMatchObject({ stdout: "on\n" });
  const ledger = await service.ledger([{ id, ends: ["failed/internal_error"] }]);
  expect(ledger).toMatchObject({ deadLetters: 1, faults: [] });
  await expect.poll(() => jobContainersOf(agent.name), { timeout: 60_000 }).toEqual([]);
});

test("fault 6: an agent that is frozen past the end of its lease is fenced when it wakes", async () => {
  const frozen = await service.startAgent("frozen", { AIRLOCK_MAX_WORKERS: "1" });
  const id = await service.submit(waits);
  await service.untilBegun(id);
  frozen.process.kill("SIGSTOP");
  await service.untilStatus(id, "queued");
  const awake = await service.startAgent("awake", { AIRLOCK_MAX_WORKERS: "1" });
  await service.untilBegun(id, 2);
  frozen.process.kill("SIGCONT");
  await signal.sendTo(awake.name);
  const record = await service.ended(id);
  expect(record).toMatchObject({ status: "succeeded", artifacts: [{ name: "run.txt" }] });
  const file = await fetch(`${service.url}/jobs/${id}/artifacts/run.txt`);
  expect(`${await file.text()}\n`).toBe(record.stdout);
  frozen.process.kill("SIGTERM");
  expect(await frozen.exit).toBe(0);
  expect(await frozen.stderr).toMatch(/attempt 1 dropped: /);
  expect((await service.ledger([{ id, ends: ["succeeded"] }])).faults).toEqual([]);
});

/** Moves the clock that a program sees, not the one that it counts durations by. */
const shifted = (ms: number) =>
  `data:text/javascript,${encodeURIComponent(`
const Real = Date;
globalThis.Date = class extends Real {
  constructor(...args) { args.length ? super(...args) : super(Real.now() + ${ms}); }
  static now() { return Real.now() + ${ms}; }
};`)}`;

describe("fault 9: an agent whose clock is an hour", () => {
  test.each([
    ["fast", 3_600_000],
    ["slow", -3_600_000],
  ])("%s keeps its leases, and its jobs have the service's times", async (_what, ms) => {
    const env = { NODE_OPTIONS: `--import ${shifted(ms)}` };
    await service.startAgent("elsewhen", env);
    const before = Date.now();
    const id = await service.submit(`import time; time.sleep(${leaseTtlS + 2})`);
    const record = await service.ended(id);
    expect(record).toMatchObject({ status: "succeeded" });
    expect(Date.parse(record.started_at ?? "")).toBeGreaterThanOrEqual(before);
    expect(Date.parse(record.ended_at ?? "")).toBeLessThanOrEqual(Date.now());
    expect(record.duration_ms).toBeGreaterThanOrEqual(leaseTtlS * 1000);
    const ledger = await service.ledger([{ id, ends: ["succeeded"] }]);
    expect(ledger).toMatchObject({ retried: 0, faults: [] });
  });
});

/** An image whose containers each get a volume, on top of the base image. */
async function imageWithVolume(tag: string): Promise<void> {
  const base = await findBaseImage(docker, Config.parse({}).base_image);
  const container = await docker.createContainer({ Image: base!, Cmd: ["true"] });
  const [repo, version] = tag.split(":");
  await container.commit({ repo, tag: version, changes: "VOLUME /kept" });
  await container.remove();
}

test("fault 16: containers and volumes of a killed agent are removed at its next start; those of others stay", async () => {
  const tag = `airlock-test-volume:${process.pid}`;
  await imageWithVolume(tag);
  const theirs = await docker.createContainer({ Image: tag, Cmd: ["true"] });
  const volumesOf = async (id: string): Promise<string[]> => {
    const { Mounts } = await docker.getContainer(id).inspect();
    return Mounts.flatMap((mount) => (mount.Name ? [mount.Name] : []));
  };
  try {
    const jobTypes = { AIRLOCK_JOB_TYPES: JSON.stringify({ kept: { base_image: tag } }) };
    await using own = await startTestService({ api: { ...shortLeases, ...jobTypes } });
    const vars = { AIRLOCK_CONTAINER_BACKEND: "engine" };
    const agent = await own.startAgent("agent", vars);
    const id = await own.submit("import time; time.sleep(600)", {}, { job_type: "kept" });
    await own.untilBegun(id);
    const [left] = await containersOf(agent.name);
    const volumes = await volumesOf(left!);
    expect(volumes).toHaveLength(1);
    await kill(agent);
    const again = await own.startAgent("agent", vars);
    const there = async () => (await docker.listVolumes()).Volumes.map(({ Name }) => Name);
    await expect.poll(there, { timeout: 60_000 }).not.toContain(volumes[0]);
    expect(await containersOf(agent.name)).not.toContain(left);
    expect(await there()).toEqual(expect.arrayContaining(await volumesOf(theirs.id)));
    again.process.kill("SIGTERM");
    await again.exit;
  } finally {
    await theirs.remove({ v: true, force: true });
    await docker.getImage(tag).remove({ force: true });
  }
});
