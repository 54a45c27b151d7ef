import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { programArgs } from "../../shared/testing/program.ts";
import { connectEngine, type Engine } from "../container/engine.ts";
import { labels } from "./profile.ts";
import { createReaper } from "../container/reap.ts";
import { openSandbox } from "../container/open-sandbox.ts";
import { testEngine } from "./testing/engine.ts";
import { deriveImage, rawEngine, removeImages } from "./testing/raw-engine.ts";
import { specWith } from "./testing/report.ts";
import type { RunOptions, Sandbox, SandboxSpec } from "./types.ts";

let engine: Engine;
let image: string;
const agentId = randomUUID();
const agentName = `lifetime-${agentId}`;
const spoolDir = mkdtempSync(join(tmpdir(), "airlock-lifetime-"));

beforeAll(async () => {
  ({ engine, image } = await testEngine());
});
afterEach(async () => {
  const left = await containersOf(agentId);
  if (left.length > 0) throw new Error(`left behind: ${left.join(", ")}`);
});
afterAll(() => rmSync(spoolDir, { recursive: true }));

const soon = (): AbortSignal => AbortSignal.timeout(30_000);

async function containersOf(agent: string): Promise<string[]> {
  const found = await engine.list(labels.agentId, agent, soon());
  return found.map(({ id }) => id);
}

/** Docker 26 may list a container as running after a wait for its end has returned. */
async function untilListedAsEnded(id: string): Promise<void> {
  const limit = soon();
  for (;;) {
    const listed = await engine.list(labels.agentName, agentName, limit);
    if (listed.some((container) => container.id === id && !container.isRunning)) return;
    await sleep(50, undefined, { signal: limit });
  }
}

function spec(changes: Partial<SandboxSpec> = {}): SandboxSpec {
  return specWith({ image, labels: { agentId, agentName, leaseId: null }, ...changes });
}

function run(sandbox: Sandbox, code: string, options: Partial<RunOptions> = {}) {
  return sandbox.run(
    {
      code,
      inputJson: "{}",
      timeoutMs: 60_000,
      caps: { streamBytes: 1000, artifactBytes: 1000 },
    },
    { signal: new AbortController().signal, spoolDir, ...options },
  );
}

test.each([
  ["runc", "after its job", true],
  ["runc", "without a job", false],
  ["runsc", "after its job", true],
  ["runsc", "without a job", false],
])("under %s a container %s has ended by itself when it is removed", async (runtime, _, hasJob) => {
  const wereRunning: boolean[] = [];
  const remove: Engine["remove"] = async (id, signal) => {
    wereRunning.push((await engine.inspect(id, signal)).isRunning);
    await engine.remove(id, signal);
  };
  const sandbox = await openSandbox({ ...engine, remove }, spec({ runtime }), soon());
  if (hasJob) await run(sandbox, "print(1)");
  await sandbox.close();
  expect(wereRunning).toEqual([false]);
});

test("a container waits for its job, runs it and is removed", async () => {
  const sandbox = await openSandbox(engine, spec(), soon());
  try {
    expect(sandbox.pythonVersion).toMatch(/^3\.[0-9]+\.[0-9]+$/);
    expect(sandbox.startupMs).toBeGreaterThan(0);
    expect(sandbox.died.aborted).toBe(false);
    expect(await run(sandbox, "")).toMatchObject({ ending: "exited", exitStatus: 0 });
  } finally {
    await Promise.all([sandbox.close(), sandbox.close()]);
  }
});

test.each([
  ["an image that is not there", { image: "airlock/none:1" }, "image_not_found", false],
  ["an image without python3", { env: { PATH: "/nowhere" } }, "command_not_found", false],
  [
    "an image without python3, under gVisor",
    { env: { PATH: "/nowhere" }, runtime: "runsc" },
    "command_not_found",
    false,
  ],
  ["a runtime that is not there", { runtime: "nope" }, "other", false],
] as const)("%s", async (_what, changes, code, transient) => {
  await expect(openSandbox(engine, spec(changes), soon())).rejects.toMatchObject({
    name: "EngineError",
    code,
    transient,
  });
});

test("an interpreter that cannot get ready is reported in its own words", async () => {
  const changes = { env: { PYTHONHOME: "/nowhere" } };
  await expect(openSandbox(engine, spec(changes), soon())).rejects.toMatchObject({
    code: "command_not_found",
    message: expect.stringContaining("encodings") as string,
  });
});

test("an engine that is not there is an error that says so", async () => {
  const nowhere = connectEngine("unix:///nowhere/docker.sock");
  await expect(openSandbox(nowhere, spec(), soon())).rejects.toMatchObject({
    code: "unavailable",
    transient: true,
  });
});

test.each([0, 10, 40, 80, 120])(
  "a start that is given up after %i ms leaves nothing",
  async (ms) => {
    const giveUp = AbortSignal.timeout(ms);
    const opening = openSandbox(engine, spec(), giveUp);
    const outcome = await opening.then(
      (sandbox) => sandbox.close().then(() => "opened"),
      (error: unknown) => error,
    );
    expect(["opened", giveUp.reason]).toContain(outcome);
  },
);

test("a start signal that fires during the run does no harm", async () => {
  const start = new AbortController();
  const sandbox = await openSandbox(engine, spec(), start.signal);
  try {
    const report = await run(sandbox, "print('on')", { onStarted: () => start.abort() });
    expect(report).toMatchObject({ ending: "exited", exitStatus: 0, lostReason: null });
  } finally {
    await sandbox.close();
  }
});

test("a container that dies while it waits is noticed and gets no job", async () => {
  const sandbox = await openSandbox(engine, spec(), soon());
  await engine.remove(sandbox.containerId, soon());
  if (!sandbox.died.aborted) await once(sandbox.died, "abort");
  await expect(run(sandbox, "")).rejects.toMatchObject({ name: "EngineError", transient: true });
  await sandbox.close();
});

test("a container that is killed while the code runs keeps what was known", async () => {
  const sandbox = await openSandbox(engine, spec(), soon());
  const removal = Promise.withResolvers<void>();
  try {
    const report = await run(sandbox, "import os, time; os.write(1, b'partial'); time.sleep(60)", {
      onOutput: () => removal.resolve(engine.remove(sandbox.containerId, soon())),
    });
    expect(report).toMatchObject({
      ending: "lost",
      started: true,
      outOfMemory: false,
      stdout: Buffer.from("partial"),
    });
    await removal.promise;
  } finally {
    await sandbox.close();
  }
});

/** Starts an agent, waits until its code runs, and kills it. */
async function killAnAgent(doomedId: string, doomedName: string): Promise<string> {
  const program = programArgs("agent/sandbox/testing/doomed-agent.ts");
  const agent = spawn(process.execPath, [...program, doomedId, doomedName], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [containerId] = (await once(agent.stdout, "data")) as [Buffer];
  agent.kill("SIGKILL");
  return containerId.toString();
}

test("a container whose agent is killed ends by itself", async () => {
  const containerId = await killAnAgent(randomUUID(), agentName);
  await engine.wait(containerId, soon());
  expect(await engine.inspect(containerId, soon())).toMatchObject({ isRunning: false });
  await engine.remove(containerId, soon());
});

const openFor = (id: string): Promise<Sandbox> =>
  openSandbox(engine, spec({ labels: { agentId: id, agentName, leaseId: null } }), soon());

/** Reaps for the agent of these tests, next to which only `liveId` is alive. */
function reap(name: string, liveId: string): Promise<number> {
  const isAlive = (id: string): Promise<boolean> => Promise.resolve(id === liveId);
  const owner = {
    agentName: name,
    agentId,
    isAlive,
    isHeld: (id: string) => id === "held",
    nowMs: Date.now,
  };
  return createReaper(engine, owner)(soon());
}

test("the reaper removes what dead agents left, and nothing else", async () => {
  const [deadId, liveId] = [randomUUID(), randomUUID()];
  const otherName = `${agentName}-other`;
  const doomed = await killAnAgent(deadId, otherName);
  const sandboxes = await Promise.all([agentId, liveId, deadId].map(openFor));
  const [own, live] = sandboxes;
  try {
    expect(await reap(agentName, liveId)).toBe(1);
    expect(await containersOf(deadId)).toEqual([doomed]);
    expect(await containersOf(liveId)).toEqual([live!.containerId]);
    expect(await containersOf(agentId)).toEqual([own!.containerId]);

    await reap(otherName, liveId);
    expect(await containersOf(deadId)).toEqual([]);
    expect(await run(own!, "")).toMatchObject({ ending: "exited" });
  } finally {
    await Promise.all(sandboxes.map((sandbox) => sandbox.close()));
  }
});

test("the reaper spares running containers of an agent it cannot see, and those that ended less than ten minutes ago", async () => {
  const elsewhere = randomUUID();
  const [ended, running] = await Promise.all([elsewhere, elsewhere].map(openFor));
  let nowMs = 0;
  const reapAll = createReaper(engine, {
    agentName,
    agentId,
    isAlive: () => Promise.resolve(null),
    isHeld: () => false,
    nowMs: () => nowMs,
  });
  try {
    await run(ended!, "");
    await untilListedAsEnded(ended!.containerId);
    expect(await reapAll(soon())).toBe(0);
    nowMs = 10 * 60_000 - 1;
    expect(await reapAll(soon())).toBe(0);
    nowMs += 1;
    expect(await reapAll(soon())).toBe(1);
    expect(await containersOf(elsewhere)).toEqual([running!.containerId]);
    expect(await run(running!, "")).toMatchObject({ ending: "exited" });
  } finally {
    await Promise.all([ended!.close(), running!.close()]);
  }
});

test("the reaper is not misled by the labels of an image", async () => {
  const its = { agentId: randomUUID(), agentName, leaseId: "over" };
  const changes = [
    `LABEL ${labels.agentName}=${its.agentName} ${labels.agentId}=${its.agentId} ${labels.leaseId}=${its.leaseId}`,
  ];
  const labelled = await deriveImage(image, "true", changes);
  const foreign = await rawEngine.createContainer({ Image: labelled, Cmd: ["true"] });
  try {
    const { Config } = await foreign.inspect();
    expect(Config.Labels).toMatchObject({ [labels.agentName]: agentName });
    const own = await openSandbox(engine, spec({ image: labelled }), soon());
    try {
      expect(await reap(agentName, "")).toBe(0);
      expect(await run(own, "")).toMatchObject({ ending: "exited" });
    } finally {
      await own.close();
    }
    await foreign.inspect();
  } finally {
    await foreign.remove({ force: true });
    await removeImages(labelled);
  }
});

test.each([
  [null, "waits", 0],
  [null, "has ended", 1],
  ["held", "has ended", 0],
  ["over", "waits", 1],
])("the reaper on its own container of lease %s that %s", async (leaseId, state, removed) => {
  const own = { agentId, agentName, leaseId };
  const sandbox = await openSandbox(engine, spec({ labels: own }), soon());
  try {
    if (state === "has ended") {
      await run(sandbox, "");
      await untilListedAsEnded(sandbox.containerId);
    }
    expect(await reap(agentName, "")).toBe(removed);
  } finally {
    await sandbox.close();
  }
});
