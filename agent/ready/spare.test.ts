import { expect, it } from "vitest";
import { EngineError } from "../sandbox/errors.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { createFakeSandbox } from "../testing/fake-sandbox.ts";
import { withSpare } from "./spare.ts";

const engineError = new EngineError("other", "the container has died");
const never = new AbortController().signal;

/** A waiting container whose first use fails, and the spare that may replace it. */
function createWorld(error: Error) {
  const waiting: Sandbox = { ...createFakeSandbox(), giveFiles: () => Promise.reject(error) };
  const spare = { ...createFakeSandbox(), containerId: "spare" };
  return { spare, sandbox: withSpare(waiting, () => Promise.resolve(spare)) };
}

it("a container that died while it waited is replaced at its first use", async () => {
  const { spare, sandbox } = createWorld(engineError);
  const file = { name: "x", path: "/x", sizeBytes: 1, sha256: "" };
  await sandbox.giveFiles([file], never);
  expect(spare.given).toEqual([file]);
  expect(sandbox.containerId).toBe("spare");
  await sandbox.close();
  expect(spare.closings()).toBe(1);
});

it.each([
  ["what is no failure of the engine", new Error("no"), never],
  ["a job that is given up", engineError, AbortSignal.abort()],
])("%s replaces no container", async (_what, error, signal) => {
  const { sandbox } = createWorld(error);
  await expect(sandbox.giveFiles([], signal)).rejects.toBe(error);
  expect(sandbox.containerId).toBe("c0ffee");
});

it("a container that has been used is not replaced", async () => {
  const { sandbox } = createWorld(engineError);
  await sandbox.install({} as Parameters<Sandbox["install"]>[0], never);
  await expect(sandbox.giveFiles([], never)).rejects.toBe(engineError);
});
