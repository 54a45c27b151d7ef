import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import type { Engine } from "../engine/engine.ts";
import { labels, type Sandbox, type SandboxLabels, type SandboxSpec } from "../sandbox/sandbox.ts";
import type { RunReport } from "../sandbox/verdict.ts";
import { killAgent, specWith, testEngine } from "../testing/engine.ts";
import { containersOf, deriveImage, rawEngine, removeImages } from "../testing/raw-engine.ts";
import { runIn } from "../testing/run-code.ts";
import { createReaper, openSandbox } from "./containers.ts";

const soon = (): AbortSignal => AbortSignal.timeout(30_000);

describe("lifetime", async () => {
  const { engine, image } = await testEngine();
  const agentId = randomUUID();
  const agentName = `lifetime-${agentId}`;

  afterEach(async () => {
    const left = await containersOf(agentName);
    if (left.length > 0) throw new Error(`left behind: ${left.join(", ")}`);
  });

  function spec(changes: Partial<SandboxSpec> = {}): SandboxSpec {
    return specWith({ image, labels: { agentId, agentName, leaseId: null }, ...changes });
  }

  test.each([
    ["runc", "after its job", true],
    ["runc", "without a job", false],
    ["runsc", "after its job", true],
    ["runsc", "without a job", false],
  ])(
    "under %s a container %s has ended by itself when it is removed",
    async (runtime, _, hasJob) => {
      const wereRunning: boolean[] = [];
      const remove: Engine["remove"] = async (id, signal) => {
        wereRunning.push((await engine.inspect(id, signal)).isRunning);
        await engine.remove(id, signal);
      };
      const sandbox = await openSandbox({ ...engine, remove }, spec({ runtime }), soon());
      if (hasJob) await runIn(sandbox, "print(1)");
      await sandbox.close();
      expect(wereRunning).toEqual([false]);
    },
  );

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
      const report = await runIn(sandbox, "print('on')", {
        options: { onStarted: () => start.abort() },
      });
      expect(report).toMatchObject({ ending: "exited", exitStatus: 0, lostReason: null });
    } finally {
      await sandbox.close();
    }
  });

  test("a container whose agent is killed ends by itself", async () => {
    const containerId = await killAgent(randomUUID(), agentName);
    await engine.wait(containerId, soon());
    expect(await engine.inspect(containerId, soon())).toMatchObject({ isRunning: false });
    await engine.remove(containerId, soon());
  });
});

describe("reap", async () => {
  const { engine, image } = await testEngine();
  const agentId = randomUUID();
  const agentName = `reaper-${agentId}`;

  afterEach(async () => {
    const left = await containersOf(agentId);
    if (left.length > 0) throw new Error(`left behind: ${left.join(", ")}`);
  });

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

  const open = (own: SandboxLabels, from = image): Promise<Sandbox> =>
    openSandbox(engine, specWith({ image: from, labels: own }), soon());

  const openFor = (id: string): Promise<Sandbox> => open({ agentId: id, agentName, leaseId: null });

  /** Runs a job to its end, and with it its container. */
  const run = (sandbox: Sandbox): Promise<RunReport> => runIn(sandbox, "");

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
    const doomed = await killAgent(deadId, otherName);
    const sandboxes = await Promise.all([agentId, liveId, deadId].map(openFor));
    const [own, live] = sandboxes;
    try {
      expect(await reap(agentName, liveId)).toBe(1);
      expect(await containersOf(deadId)).toEqual([doomed]);
      expect(await containersOf(liveId)).toEqual([live!.containerId]);
      expect(await containersOf(agentId)).toEqual([own!.containerId]);

      await reap(otherName, liveId);
      expect(await containersOf(deadId)).toEqual([]);
      expect(await run(own!)).toMatchObject({ ending: "exited" });
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
      await run(ended!);
      await untilListedAsEnded(ended!.containerId);
      expect(await reapAll(soon())).toBe(0);
      nowMs = 10 * 60_000 - 1;
      expect(await reapAll(soon())).toBe(0);
      nowMs += 1;
      expect(await reapAll(soon())).toBe(1);
      expect(await containersOf(elsewhere)).toEqual([running!.containerId]);
      expect(await run(running!)).toMatchObject({ ending: "exited" });
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
      const own = await open({ agentId, agentName, leaseId: null }, labelled);
      try {
        expect(await reap(agentName, "")).toBe(0);
        expect(await run(own)).toMatchObject({ ending: "exited" });
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
    const sandbox = await open({ agentId, agentName, leaseId });
    try {
      if (state === "has ended") {
        await run(sandbox);
        await untilListedAsEnded(sandbox.containerId);
      }
      expect(await reap(agentName, "")).toBe(removed);
    } finally {
      await sandbox.close();
    }
  });
});
