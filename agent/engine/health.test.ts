import { getLogger, reset } from "@logtape/logtape";
import { array, assert, constantFrom, integer, property, record } from "fast-check";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { logLines } from "../../shared/testing/test-file.ts";
import type { EngineHealth } from "../../shared/wire/health.ts";
import { EngineError, type EngineErrorCode } from "../sandbox/sandbox.ts";
import { createTestClock, type TestClock } from "../testing/fakes.ts";
import { abortable, createChangeSignal } from "../waiting.ts";
import type { Engine } from "./engine.ts";
import {
  type Breaker,
  type BreakerEvent,
  closedBreaker,
  countErrors,
  createEngineMonitor,
  describeBreaker,
  type EngineMonitor,
  FAILURES_TO_OPEN,
  nextBreaker,
  recoversInMs,
  RECOVERY_MS,
} from "./health.ts";

describe("engine monitor", () => {
  const good: EngineHealth = { available: true, version: "20.10", runtimes: ["runc", "runsc"] };
  const errors = [{ operation: "create", kind: "other", count: 3 }];
  const PROBE_EVERY_MS = 5000;
  const PROBE_TIMEOUT_MS = 5000;
  const DESCRIBE_TIMEOUT_MS = 60_000;

  let clock: TestClock;
  let engine: EngineMonitor;
  let answer: EngineHealth | Error | "silence";
  let asked: ("ping" | "describe")[];
  let describe: (signal: AbortSignal) => Promise<EngineHealth>;
  let sweeps: number;
  let end: AbortController;
  let running: Promise<void>;

  beforeEach(() => {
    clock = createTestClock();
    end = new AbortController();
    answer = good;
    sweeps = 0;
    asked = [];
    describe = reply;
    engine = createEngineMonitor({
      ping: async (signal) => {
        asked.push("ping");
        await reply(signal);
      },
      describe: (signal) => {
        asked.push("describe");
        return describe(signal);
      },
      forkProblem: () => null,
      sweep: () => {
        sweeps += 1;
        return Promise.resolve();
      },
      errors: () => errors,
      clock,
      changes: createChangeSignal(),
      log: getLogger(["airlock", "agent"]),
    });
  });
  afterEach(async () => {
    end.abort();
    await running;
  });

  async function reply(signal: AbortSignal): Promise<EngineHealth> {
    if (answer === "silence") return abortable(new Promise(() => {}), signal);
    if (answer instanceof Error) throw answer;
    return answer;
  }

  function run(): void {
    running = engine.run(end.signal);
  }

  /** Lets the next `n` probes happen. */
  async function probes(n: number): Promise<void> {
    for (let i = 0; i < n; i++) {
      await clock.sleeping(PROBE_EVERY_MS);
      clock.advance(PROBE_EVERY_MS);
      await new Promise(setImmediate);
    }
  }

  it("offers nothing before the engine has answered", async () => {
    expect(engine.slotsToOffer(4, 0)).toBe(0);
    run();
    await engine.firstChecked;
    expect(engine.slotsToOffer(4, 0)).toBe(4);
    expect(engine.health()).toEqual({ ...good, errors, fork_problem: null });
  });

  it.each([
    ["EACCES", /refused; the agent's user has to be in the socket's group/],
    ["ENOENT", /refused; start the engine/],
    ["ECONNREFUSED", /refused; start the engine/],
    ["ETIMEDOUT", /refused$/],
  ])("says once what to do about %s", async (code, line) => {
    const lines = await logLines("error");
    const cause = Object.assign(new Error("refused"), { code });
    answer = new EngineError("unavailable", "refused", { cause });
    run();
    await probes(2);
    await reset();
    expect(lines).toEqual([expect.stringMatching(line)]);
  });

  it("offers nothing while the engine is silent, opens the breaker, and recovers without a job", async () => {
    answer = new Error("connect ENOENT");
    run();
    await engine.firstChecked;
    expect(engine.health().available).toBe(false);
    expect(engine.breaker()).toMatchObject({ state: "closed", failure_count: 1 });
    await probes(4);
    expect(engine.breaker()).toMatchObject({ state: "open", failure_count: 5 });

    answer = good;
    await probes(5);
    expect(engine.health().available).toBe(true);
    expect(engine.breaker().state).toBe("open");
    expect(engine.slotsToOffer(4, 0)).toBe(0);
    await probes(1);
    expect(engine.breaker()).toMatchObject({ state: "half_open", success_count: 1 });
    await probes(1);
    expect(engine.breaker()).toMatchObject({ state: "closed", failure_count: 0 });
    expect(engine.slotsToOffer(4, 0)).toBe(4);
  });

  it("opens after five failed jobs even if the engine answers; then only jobs close it", async () => {
    run();
    await engine.firstChecked;
    for (let i = 0; i < 5; i++) engine.recordFailure();
    expect(engine.breaker()).toMatchObject({ state: "open", failure_count: 5 });
    expect(engine.slotsToOffer(4, 0)).toBe(0);

    await probes(8);
    expect(engine.breaker()).toMatchObject({ state: "half_open", success_count: 0 });
    expect(engine.slotsToOffer(4, 0)).toBe(1);
    expect(engine.slotsToOffer(3, 1)).toBe(0);
    engine.recordSuccess();
    expect(engine.breaker().state).toBe("half_open");
    engine.recordSuccess();
    expect(engine.breaker().state).toBe("closed");
  });

  it("forgets failures when a job succeeds, not when the engine answers", async () => {
    run();
    await engine.firstChecked;
    engine.recordFailure();
    await probes(2);
    expect(engine.breaker().failure_count).toBe(1);
    engine.recordSuccess();
    expect(engine.breaker().failure_count).toBe(0);
  });

  it("checks an engine that failed a job at once, not at its next turn", async () => {
    run();
    await clock.sleeping(PROBE_EVERY_MS);
    answer = new Error("connect ECONNREFUSED");
    engine.recordFailure();
    await new Promise(setImmediate);
    expect(engine.health()).toMatchObject({ available: false, version: "20.10" });
  });

  it("says at once whether the engine answers; a lost run is a failure only if it does not", async () => {
    run();
    await clock.sleeping(PROBE_EVERY_MS);
    expect(await engine.checkNow()).toBe(true);
    expect(engine.breaker().failure_count).toBe(0);
    answer = new Error("connect ECONNREFUSED");
    expect(await engine.checkNow()).toBe(false);
    expect(engine.breaker().failure_count).toBe(1);
    expect(engine.slotsToOffer(4, 0)).toBe(0);
  });

  it("does not wait for an engine that hangs, and says so", async () => {
    const lines = await logLines("error");
    run();
    await engine.firstChecked;
    answer = "silence";
    const told = engine.checkNow();
    await clock.sleeping(PROBE_TIMEOUT_MS);
    clock.advance(PROBE_TIMEOUT_MS);
    expect(await told).toBe(false);
    await reset();
    expect(lines).toEqual([
      "no jobs can run: the container engine did not answer within 5 s; if the host is overloaded, lower max_workers, else restart the engine",
    ]);
  });

  it("removes leftovers at the start, after each requested check, and once a minute", async () => {
    run();
    await probes(3);
    expect(sweeps).toBe(1);
    engine.checkSoon();
    await probes(2);
    expect(sweeps).toBe(2);
    await probes(12);
    expect(sweeps).toBe(3);
  });

  it("pings the engine, and asks what it is at the start, once a minute and after an outage", async () => {
    const described = (): number => asked.filter((call) => call === "describe").length;
    run();
    await engine.firstChecked;
    await probes(11);
    expect(asked.filter((call) => call === "ping")).toHaveLength(12);
    expect(described()).toBe(1);
    answer = { ...good, version: "26.1" };
    await probes(2);
    expect(described()).toBe(2);
    expect(engine.health().version).toBe("26.1");
    answer = new Error("connect ECONNREFUSED");
    await probes(1);
    answer = { ...good, version: "27.0" };
    await probes(1);
    expect(engine.health()).toMatchObject({ available: true, version: "27.0" });
    expect(described()).toBe(3);
  });

  it("waits a minute for what an engine is: Podman answers only after it has run its programs", async () => {
    const lines = await logLines("error");
    const described = Promise.withResolvers<EngineHealth>();
    describe = () => described.promise;
    run();
    await clock.sleeping(DESCRIBE_TIMEOUT_MS);
    clock.advance(DESCRIBE_TIMEOUT_MS - 1);
    described.resolve(good);
    await engine.firstChecked;
    await reset();
    expect(engine.health()).toMatchObject(good);
    expect(lines).toEqual([]);
  });

  it("says so when an engine that answers does not tell what it is", async () => {
    const lines = await logLines("error");
    describe = (signal) => abortable(new Promise(() => {}), signal);
    run();
    await clock.sleeping(DESCRIBE_TIMEOUT_MS);
    clock.advance(DESCRIBE_TIMEOUT_MS);
    await engine.firstChecked;
    await reset();
    expect(lines).toEqual([
      "no jobs can run: the container engine did not answer within 60 s; if the host is overloaded, lower max_workers, else restart the engine",
    ]);
  });

  it("only pings an engine that is in doubt", async () => {
    run();
    await clock.sleeping(PROBE_EVERY_MS);
    expect(await engine.checkNow()).toBe(true);
    expect(asked.filter((call) => call === "describe")).toHaveLength(1);
  });
});

const T = 1_000_000;
const closed = (failures: number): Breaker => ({ ...closedBreaker, failures });
const open: Breaker = { ...closedBreaker, state: "open", failures: 5, openedMs: T };
const halfOpen = (successes: number): Breaker => ({ ...open, state: "half_open", successes });
const due = T + RECOVERY_MS;

describe("every state and event", () => {
  it.each<[string, Breaker, BreakerEvent, number, Partial<Breaker>]>([
    ["closed", closed(0), "failure", T, { state: "closed", failures: 1, lastFailureMs: T }],
    ["closed", closed(3), "failure", T, { state: "closed", failures: 4 }],
    ["closed", closed(4), "failure", T, { state: "open", failures: 5, openedMs: T }],
    ["closed", closed(4), "success", T, { state: "closed", failures: 0 }],
    ["closed", closed(4), "tick", T, { state: "closed", failures: 4 }],
    ["open", open, "failure", due - 1, { state: "open", failures: 6, openedMs: T }],
    ["open", open, "success", due - 1, { state: "open", failures: 5 }],
    ["open", open, "tick", due - 1, { state: "open" }],
    ["open, due", open, "tick", due, { state: "half_open", successes: 0 }],
    ["open, due", open, "success", due, { state: "half_open", successes: 1 }],
    ["open, due", open, "failure", due, { state: "open", openedMs: due, lastFailureMs: due }],
    ["half open", halfOpen(0), "success", due, { state: "half_open", successes: 1 }],
    ["half open", halfOpen(1), "success", due, { state: "closed", failures: 0, successes: 0 }],
    ["half open", halfOpen(1), "failure", due, { state: "open", openedMs: due, successes: 0 }],
    ["half open", halfOpen(1), "tick", due, { state: "half_open", successes: 1 }],
  ])("%s: %o + %s at %d", (_name, before, event, nowMs, after) => {
    expect(nextBreaker(before, event, nowMs)).toMatchObject(after);
  });
});

type Step = { before: Breaker; after: Breaker; event: BreakerEvent; nowMs: number };

/** What docs/contract.md 5.10 and 5.11 allow, given the failures in a row up to this step. */
function isLegal({ before, after, event, nowMs }: Step, failuresInARow: number): boolean {
  const opened = after.state === "open" && after.openedMs === nowMs;
  if (before.state === "closed") {
    return failuresInARow >= FAILURES_TO_OPEN ? opened : after.state === "closed";
  }
  if (before.state === "half_open") {
    if (event === "failure") return opened;
    const closes = event === "success" && before.successes === 1;
    return after.state === (closes ? "closed" : "half_open");
  }
  if (nowMs - before.openedMs < RECOVERY_MS) {
    return after.state === "open" && after.openedMs === before.openedMs;
  }
  return event === "failure" ? opened : after.state === "half_open";
}

it("keeps the contract's rules in any history", () => {
  const moves = array(
    record({
      event: constantFrom<BreakerEvent>("failure", "success", "tick"),
      afterMs: integer({ min: 0, max: RECOVERY_MS + 1 }),
    }),
  );
  assert(
    property(moves, (history) => {
      let breaker = closedBreaker;
      let nowMs = T;
      let failuresInARow = 0;
      return history.every(({ event, afterMs }) => {
        nowMs += afterMs;
        if (event !== "tick") failuresInARow = event === "failure" ? failuresInARow + 1 : 0;
        const before = breaker;
        breaker = nextBreaker(before, event, nowMs);
        return isLegal({ before, after: breaker, event, nowMs }, failuresInARow);
      });
    }),
  );
});

it("tells how long it stays open", () => {
  expect(recoversInMs(open, T + 1000)).toBe(RECOVERY_MS - 1000);
  expect(recoversInMs(open, due + 1)).toBe(0);
  expect(recoversInMs(closedBreaker, T)).toBe(Infinity);
  expect(recoversInMs(halfOpen(0), T)).toBe(Infinity);
});

it("is reported as /health names it", () => {
  const failed = nextBreaker(closedBreaker, "failure", Date.UTC(2026, 10, 21));
  expect(describeBreaker(failed)).toEqual({
    state: "closed",
    failure_count: 1,
    success_count: 0,
    last_failure: "2026-11-21T00:00:00.000Z",
  });
  expect(describeBreaker(closedBreaker).last_failure).toBeNull();
});

const signal = new AbortController().signal;
const fail = (code: EngineErrorCode) => Promise.reject(new EngineError(code, "it failed"));
const isOver = new DOMException("not within 5000 ms", "TimeoutError");

/** An engine of which only these calls are made. */
function counting(calls: Partial<Engine>) {
  return countErrors(calls as Engine);
}

it("counts failed calls by call and kind, and passes on answers and errors", async () => {
  const { engine, errors } = counting({
    create: () => fail("unavailable"),
    start: (id) => (id === "good" ? Promise.resolve() : fail("other")),
    list: (name, value) =>
      Promise.resolve([{ id: name, name, isRunning: true, labels: { value } }]),
  });
  expect(errors()).toEqual([]);
  await expect(engine.create({} as never, signal)).rejects.toThrow("it failed");
  await expect(engine.create({} as never, signal)).rejects.toThrow("it failed");
  await expect(engine.start("bad", signal)).rejects.toThrow("it failed");
  await engine.start("good", signal);
  expect(await engine.list("a", "b", signal)).toMatchObject([{ id: "a", labels: { value: "b" } }]);
  expect(errors()).toEqual([
    { operation: "create", kind: "unavailable", count: 2 },
    { operation: "start", kind: "other", count: 1 },
  ]);
});

it("counts an engine that does not answer in time, but not a call that was given up", async () => {
  const { engine, errors } = counting({
    describe: () => Promise.reject(isOver),
    wait: () => Promise.reject(isOver),
    remove: () => Promise.reject(new Error("cancelled")),
  });
  await expect(engine.describe(signal)).rejects.toThrow("not within");
  await expect(engine.wait("id", signal)).rejects.toThrow("not within");
  await expect(engine.remove("id", signal)).rejects.toThrow("cancelled");
  expect(errors()).toEqual([{ operation: "describe", kind: "timeout", count: 1 }]);
});
