import { expect, test } from "vitest";
import { durations, type Event, steps } from "./steps.ts";

const events: Event[] = steps.map(({ until }, i) => [100 + 2 * (i + 1), until]);

test("each step lasts from the end of the one before", () => {
  expect(durations(events.toReversed(), 100)).toEqual(steps.map(() => 2));
});

test("events of another run, and others in between, do not count", () => {
  const more: Event[] = [
    [50, "api receives execute"],
    [103, "api receives poll"],
  ];
  expect(durations([...more, ...events], 100)).toEqual(steps.map(() => 2));
});

test("a run with a missing event does not count", () => {
  expect(durations(events.slice(1), 100)).toBeNull();
});
