import { array, assert, constantFrom, integer, property, record } from "fast-check";
import { describe, expect, it } from "vitest";
import {
  type Breaker,
  type BreakerEvent,
  closedBreaker,
  describeBreaker,
  FAILURES_TO_OPEN,
  nextBreaker,
  RECOVERY_MS,
  recoversInMs,
} from "./breaker.ts";

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
