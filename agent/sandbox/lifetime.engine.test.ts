import { randomUUID } from "node:crypto";
import { afterEach, expect, test } from "vitest";
import { type Engine } from "../engine/engine.ts";
import { openSandbox } from "../container/open-sandbox.ts";
import { testEngine } from "./testing/engine.ts";
import { containersOf } from "./testing/raw-engine.ts";
import { killAgent } from "./testing/kill-agent.ts";
import { runIn } from "./testing/run-code.ts";
import { specWith } from "./testing/report.ts";
import type { SandboxSpec } from "./spec.ts";

const { engine, image } = await testEngine();
const agentId = randomUUID();
const agentName = `lifetime-${agentId}`;

afterEach(async () => {
  const left = await containersOf(agentName);
  if (left.length > 0) throw new Error(`left behind: ${left.join(", ")}`);
});

const soon = (): AbortSignal => AbortSignal.timeout(30_000);

function spec(changes: Partial<SandboxSpec> = {}): SandboxSpec {
  return specWith({ image, labels: { agentId, agentName, leaseId: null }, ...changes });
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
  if (hasJob) await runIn(sandbox, "print(1)");
  await sandbox.close();
  expect(wereRunning).toEqual([false]);
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
