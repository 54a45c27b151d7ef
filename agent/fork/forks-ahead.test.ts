import { setTimeout as sleep } from "node:timers/promises";
import { expect, test, vi } from "vitest";
import { createFakeSandbox, type FakeSandbox } from "../testing/fake-sandbox.ts";
import { abortable } from "../waiting/abortable.ts";
import { specWith } from "../sandbox/testing/report.ts";
import { EngineError } from "../sandbox/errors.ts";
import { createForksAhead } from "./forks-ahead.ts";

const never = new AbortController().signal;
const spec = specWith({});

/** Forks that are opened when the test says so. */
function createWorld(idleMs = 60_000) {
  const opened: (FakeSandbox & { readonly die: () => void })[] = [];
  const gates: (() => void)[] = [];
  let failure: Error | undefined;
  let isHeld = false;
  const ahead = createForksAhead(async (_, signal) => {
    if (isHeld) await abortable(new Promise<void>((resolve) => gates.push(resolve)), signal);
    if (failure) throw failure;
    const death = new AbortController();
    const fork = { ...createFakeSandbox(), died: death.signal, die: () => death.abort() };
    opened.push(fork);
    return fork;
  }, idleMs);
  return {
    ahead,
    opened,
    hold: () => void (isHeld = true),
    isWaiting: () => vi.waitFor(() => expect(gates).toHaveLength(1)),
    letGo: () => gates.splice(0).forEach((resolve) => resolve()),
    fail: (error: Error) => void (failure = error),
  };
}

test("a job takes the fork that waits, once", async () => {
  const { ahead, opened } = createWorld();
  ahead.prepare(spec);
  ahead.prepare(spec);
  const [first, second] = [await ahead.open(spec, never), await ahead.open(spec, never)];
  expect(opened).toHaveLength(2);
  await first.close();
  expect(opened.map(({ closings }) => closings())).toEqual([1, 0]);
  await second.close();
});

test("a job of another kind does not take it", async () => {
  const { ahead, opened } = createWorld();
  ahead.prepare(spec);
  await ahead.open(specWith({ env: { A: "b" } }), never);
  expect(opened).toHaveLength(2);
});

test("none is opened ahead while a job waits for a fork", async () => {
  const { ahead, opened, hold, isWaiting, letGo } = createWorld();
  hold();
  const waiting = ahead.open(spec, never);
  await isWaiting();
  ahead.prepare(spec);
  letGo();
  await waiting;
  expect(opened).toHaveLength(1);
});

test("a fork that dies while it waits is closed, and the next job gets another one", async () => {
  const { ahead, opened } = createWorld();
  ahead.prepare(spec);
  await vi.waitFor(() => expect(opened).toHaveLength(1));
  opened[0]!.die();
  await opened[0]!.closed;
  await ahead.open(spec, never);
  expect(opened).toHaveLength(2);
});

test("a fork that could not be opened ahead is opened for the job", async () => {
  const { ahead, fail } = createWorld();
  fail(new EngineError("other", "no mother"));
  ahead.prepare(spec);
  await expect(ahead.open(spec, never)).rejects.toThrow("no mother");
});

test("a job that gives up while its fork is opened leaves none behind", async () => {
  const { ahead, opened, hold, isWaiting, letGo } = createWorld();
  hold();
  ahead.prepare(spec);
  const giveUp = new AbortController();
  const waiting = ahead.open(spec, giveUp.signal);
  giveUp.abort(new Error("cancelled"));
  await expect(waiting).rejects.toThrow("cancelled");
  await isWaiting();
  letGo();
  await vi.waitFor(() => expect(opened[0]?.closings()).toBe(1));
});

test("a fork that has waited too long is closed, and so are all at the end", async () => {
  const { ahead, opened } = createWorld(20);
  ahead.prepare(spec);
  await vi.waitFor(() => expect(opened[0]?.closings()).toBe(1));
  ahead.prepare(spec);
  await ahead.close();
  await opened[1]!.closed;
  ahead.prepare(spec);
  await sleep(0);
  expect(opened).toHaveLength(2);
});

test("forks of few kinds wait", async () => {
  const { ahead, opened } = createWorld();
  for (const name of ["a", "b", "c", "d", "e"]) ahead.prepare(specWith({ env: { name } }));
  await vi.waitFor(() => expect(opened[0]?.closings()).toBe(1));
  expect(opened.slice(1).map(({ closings }) => closings())).toEqual([0, 0, 0, 0]);
});

test("a fork that is being opened ahead does not hold up the end", async () => {
  const { ahead, opened, hold, isWaiting } = createWorld();
  hold();
  ahead.prepare(spec);
  await isWaiting();
  await ahead.close();
  expect(opened).toEqual([]);
});
