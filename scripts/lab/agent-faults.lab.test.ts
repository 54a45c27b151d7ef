import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { containersOf, jobContainersOf, makeCodeSignal } from "../../agent/testing/raw-engine.ts";
import { Config } from "../../shared/config/config.ts";
import { waitUntil } from "../../shared/testing/test-file.ts";
import { connect } from "../setup/engine.ts";
import { findBaseImage } from "../setup/set-up.ts";
import {
  expectOneRun,
  leaseTtlS,
  shortLeases,
  startTestService,
  type TestService,
} from "../testing/test-service.ts";

describe("agent", () => {
  const docker = connect(process.env["AIRLOCK_DOCKER_HOST"] || "unix:///var/run/docker.sock");

  let service: TestService;
  beforeEach(async () => {
    service = await startTestService({ api: shortLeases });
  });
  afterEach(() => service[Symbol.asyncDispose]());

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
    await first.end("SIGKILL");
    await service.startAgent();
    await service.untilBegun(id, 2);
    expect(await containersOf(name)).not.toContain(left);
    await signal.sendTo(name);
    await expectOneRun(service, id);
    const { json } = await service.send("GET", `/executions/${id}?view=all`);
    expect(json["attempts"]).toMatchObject([
      { attempt: 1, agent: name, outcome: "agent_crashed" },
      { attempt: 2, agent: name, outcome: "result" },
    ]);
    await service.expectSucceeded([id], 1);
  });

  test("fault 14: a job that kills its agent every time: one dead letter after two attempts", async () => {
    let agent = await service.startAgent();
    const id = await service.submit("import time; time.sleep(600)", {}, { timeout: 900 });
    for (const attempt of [1, 2]) {
      await service.untilBegun(id, attempt);
      await agent.end("SIGKILL");
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
    await expectOneRun(service, id);
    expect(await frozen.end("SIGTERM")).toBe(0);
    expect(await frozen.stderr).toMatch(/attempt 1 dropped: /);
    await service.expectSucceeded([id], 1);
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
      await service.expectSucceeded([id], 0);
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
      await agent.end("SIGKILL");
      const again = await own.startAgent("agent", vars);
      const there = async () => (await docker.listVolumes()).Volumes.map(({ Name }) => Name);
      await expect.poll(there, { timeout: 60_000 }).not.toContain(volumes[0]);
      expect(await containersOf(agent.name)).not.toContain(left);
      expect(await there()).toEqual(expect.arrayContaining(await volumesOf(theirs.id)));
      await again.end("SIGTERM");
    } finally {
      await theirs.remove({ v: true, force: true });
      await docker.getImage(tag).remove({ force: true });
    }
  });
});

test("fault 13: SIGTERM to agent and API at once, under load: both end in order, nothing is lost or run twice", async () => {
  await using service = await startTestService({ api: shortLeases });
  const agent = await service.startAgent("stopped", { AIRLOCK_MAX_WORKERS: "2" });
  const acknowledged = new Map<string, string>();
  const code = `import json, time; time.sleep(0.3); print(json.load(open("/input/data.json"))["mark"])`;
  let isStopping = false;
  const hasRoom = async () => {
    const { json } = await service.send("GET", "/health");
    return (json["queue_stats"] as { pending: number }).pending < 10;
  };
  const clients = Array.from({ length: 3 }, async (_, client) => {
    for (let n = 0; ; n++) {
      const mark = `${client} ${n}`;
      try {
        await waitUntil("the queue has room", hasRoom);
        acknowledged.set(await service.submit(code, { mark }), `${mark}\n`);
      } catch (error) {
        if (isStopping) return;
        throw error;
      }
    }
  });
  const done = "SELECT id, ended_at FROM executions WHERE status = 'succeeded'";
  await waitUntil(
    "three jobs are done",
    async () => (await service.db.execute(done)).rows.length >= 3,
  );
  isStopping = true;
  agent.process.kill("SIGTERM");
  service.api().child.kill("SIGTERM");
  await Promise.all(clients);
  expect(await Promise.all([agent.exit, service.api().exited])).toEqual([0, 0]);
  const before = (await service.db.execute(done)).rows;
  expect(before.length).toBeGreaterThanOrEqual(3);

  await service.startApi();
  await service.startAgent("stopped", { AIRLOCK_MAX_WORKERS: "4" });
  for (const id of acknowledged.keys()) await service.ended(id);
  const books = [...acknowledged].map(([id, stdout]) => ({ id, ends: ["succeeded"], stdout }));
  expect((await service.ledger(books)).faults).toEqual([]);
  const ends = new Map((await service.db.execute(done)).rows.map((row) => [row["id"], row]));
  for (const row of before) expect(ends.get(row["id"])).toEqual(row);
});

test("an agent that is replaced twice under load finishes its jobs, and the next one runs new jobs, each once", async () => {
  await using service = await startTestService({ api: shortLeases });
  await service.db.batch(
    [
      "CREATE TABLE begun (execution_id TEXT)",
      `CREATE TRIGGER noted AFTER UPDATE ON executions
        WHEN NEW.code_started_at IS NOT NULL AND OLD.code_started_at IS NULL
        BEGIN INSERT INTO begun VALUES (NEW.id); END`,
    ],
    "write",
  );
  // As long as the longest job may take on a busy machine.
  const start = () =>
    service.startAgent("updated", { AIRLOCK_MAX_WORKERS: "2", AIRLOCK_DRAIN_GRACE_S: "300" });
  const acknowledged = new Map<string, string>();
  const code = `import json, time; time.sleep(0.3); print(json.load(open("/input/data.json"))["mark"])`;
  const over = new AbortController();
  const clients = Array.from({ length: 5 }, async (_, client) => {
    for (let n = 0; !over.signal.aborted; n++) {
      const mark = `${client} ${n}`;
      const id = await service.submit(code, { mark });
      acknowledged.set(id, `${mark}\n`);
      await service.ended(id);
    }
  });

  const count = async (where: string): Promise<number> => {
    const { rows } = await service.db.execute(
      `SELECT count(*) AS n FROM executions WHERE ${where}`,
    );
    return Number(rows[0]?.["n"]);
  };
  async function untilBusy(): Promise<void> {
    const before = await count("status = 'succeeded'");
    const running = "status = 'running' AND code_started_at IS NOT NULL";
    await waitUntil(
      "four more jobs end",
      async () => (await count("status = 'succeeded'")) >= before + 4,
    );
    await waitUntil("code runs", async () => (await count(running)) > 0);
  }
  const first = await start();
  await untilBusy();
  expect(await first.end("SIGTERM")).toBe(0);
  expect(await count("status = 'running'")).toBe(0);
  const second = await start();
  await untilBusy();
  // This time the next one is there before.
  const third = await start();
  expect(await second.end("SIGTERM")).toBe(0);
  await untilBusy();
  over.abort();
  await Promise.all(clients);
  expect(await third.end("SIGTERM")).toBe(0);

  const books = [...acknowledged].map(([id, stdout]) => ({ id, ends: ["succeeded"], stdout }));
  expect(books.length).toBeGreaterThanOrEqual(12);
  const { ended, deadLetters, faults } = await service.ledger(books);
  expect({ ended, deadLetters, faults }).toEqual({
    ended: new Map([["succeeded", books.length]]),
    deadLetters: 0,
    faults: [],
  });
  // One that was leased and had not begun may have gone back to the queue.
  const { rows } = await service.db.execute("SELECT execution_id FROM begun ORDER BY 1");
  expect(rows.map((row) => row["execution_id"])).toEqual([...acknowledged.keys()].sort());
});
