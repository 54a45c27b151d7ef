import { randomUUID } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { readProcess } from "../../scripts/setup/engine.ts";
import { childrenOf } from "../../scripts/testing/machine.ts";
import { EngineError, type Sandbox } from "../sandbox/sandbox.ts";
import { startForks } from "../testing/backend.ts";
import { specWith, testEngine } from "../testing/engine.ts";
import { rawEngine, removeVolume, shell } from "../testing/raw-engine.ts";
import { runIn } from "../testing/run-code.ts";
import type { Forks } from "./forks.ts";

const place = await testEngine();
const labels = { agentId: randomUUID(), agentName: `recovers-${randomUUID()}`, leaseId: null };
const spec = specWith({ image: place.image, labels });

let forks: Forks;
beforeEach(() => {
  forks = startForks(place, { mother: labels, answerMs: 5000 });
});
afterEach(() => forks.close());

const open = (limit = AbortSignal.timeout(120_000)): Promise<Sandbox> => forks.open(spec, limit);

/** Runs a job; returns its mother's container and process. */
async function runJob(): Promise<{ container: string; pid: number }> {
  const sandbox = await open();
  try {
    const report = await runIn(sandbox, "print('hi')");
    expect(Buffer.from(report.stdout).toString("utf8")).toBe("hi\n");
    const { State } = await rawEngine.getContainer(sandbox.containerId).inspect();
    return { container: sandbox.containerId, pid: State.Pid };
  } finally {
    await sandbox.close();
  }
}

/** Asks for a job, and gives it up when any fork would have been there, or at once. */
async function giveUpJob(afterMs = 1500): Promise<void> {
  const end = new AbortController();
  const asked = open(end.signal);
  asked.catch(() => {});
  await setTimeout(afterMs);
  end.abort(new Error("given up"));
  await expect(asked).rejects.toThrow("given up");
}

test("a job that is cancelled while its fork opens takes no zygote from the others", async () => {
  const { pid } = await runJob();
  const zygotes = childrenOf(pid);
  signalAll(zygotes, "SIGSTOP");
  await giveUpJob(0);
  signalAll(zygotes, "SIGCONT");
  await runJob();
  expect(zygotes.filter(isAlive)).toEqual(zygotes);
});

test("a zygote that no longer forks is replaced once a job has waited for it in vain", async () => {
  const { pid, container } = await runJob();
  const zygotes = childrenOf(pid);
  signalAll(zygotes, "SIGSTOP");
  await giveUpJob();
  expect((await runJob()).container).toBe(container);
  // The probe job's zygote is left: no job waited for it.
  await vi.waitFor(() => expect(zygotes.filter(isAlive)).toHaveLength(1), 20_000);
});

test("a mother that no longer answers is replaced once a job has waited for it in vain", async () => {
  const { pid, container } = await runJob();
  process.kill(pid, "SIGSTOP");
  await giveUpJob();
  expect((await runJob()).container).not.toBe(container);
});

test("a mother that hangs while a zygote starts is replaced", async () => {
  const { pid, container } = await runJob();
  process.kill(pid, "SIGSTOP");
  const ofAnotherKind = { ...spec, env: { OTHER: "kind" } };
  const sandbox = await forks.open(ofAnotherKind, AbortSignal.timeout(120_000));
  expect(sandbox.containerId).not.toBe(container);
  await sandbox.close();
});

test.each(["the mother", "its zygote"])(
  "%s ends while a job is forked: it is forked again",
  async (what) => {
    const { pid } = await runJob();
    const zygotes = childrenOf(pid);
    // The job waits in the socket of a zygote that is killed before it reads it.
    signalAll(zygotes, "SIGSTOP");
    const asked = open();
    await new Promise(setImmediate);
    signalAll(what === "the mother" ? [pid] : zygotes, "SIGKILL");
    const sandbox = await asked;
    expect(sandbox.died.aborted).toBe(false);
    await sandbox.close();
  },
);

test.each([
  ["only its own PID 1", false],
  ["its zygote", true],
  ["its mother", true],
])("a job whose code runs knows that %s has ended", async (what, isHostLost) => {
  const begun = Promise.withResolvers<void>();
  const sandbox = await open();
  const { State } = await rawEngine.getContainer(sandbox.containerId).inspect();
  const options = { onStarted: begun.resolve };
  const ended = runIn(sandbox, "import time; time.sleep(3600)", { options });
  await begun.promise;
  const zygotes = childrenOf(State.Pid);
  const killed = {
    "only its own PID 1": zygotes.flatMap(childrenOf),
    "its zygote": zygotes,
    "its mother": [State.Pid],
  }[what]!;
  signalAll(killed, "SIGKILL");
  expect(await ended).toMatchObject({ ending: "lost", isHostLost });
  await sandbox.close();
});

test("a job that cannot be forked twice says why, and not that the engine failed", async () => {
  const order = { packages: { bundle: "0".repeat(32), requirements: [] }, files: [] };
  const failed = forks.open(spec, AbortSignal.timeout(120_000), order);
  await expect(failed).rejects.toThrow(/did not get ready.*No such file/);
  await expect(failed).rejects.toMatchObject({ code: "not_forked", transient: true });
  await expect(failed).rejects.toBeInstanceOf(EngineError);
});

test("where the unpacked images are gone, jobs are forked again soon", async () => {
  const rootfs = `airlock-rootfs-${labels.agentName}`;
  await forks.close();
  forks = startForks(place, { mother: { ...labels, rootfs } });
  try {
    const { pid } = await runJob();
    await shell(place.image, "rm -rf /volume/*", `${rootfs}:/volume`);
    signalAll(childrenOf(pid), "SIGKILL");
    await vi.waitFor(runJob, { timeout: 120_000, interval: 500 });
  } finally {
    await forks.close();
    await removeVolume(rootfs);
  }
});

function signalAll(pids: readonly number[], signal: NodeJS.Signals): void {
  for (const pid of pids) process.kill(pid, signal);
}

const isAlive = (pid: number): boolean => readProcess(pid) !== undefined;
