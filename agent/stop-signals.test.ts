import { EventEmitter } from "node:events";
import { expect, it } from "vitest";
import { listenForStop } from "./stop-signals.ts";
import { createTestClock } from "./testing/test-clock.ts";

/** What has been asked for after each event; a number lets milliseconds pass. */
function after(...events: (string | number)[]) {
  const process = new EventEmitter();
  const clock = createTestClock();
  const { stop, abort } = listenForStop(process, clock);
  for (const event of events) {
    if (typeof event === "number") clock.advance(event);
    else process.emit(event, event);
  }
  return { stop: stop.aborted, abort: abort.aborted };
}

it.each([
  [[], false, false],
  [["SIGTERM"], true, false],
  [["SIGINT"], true, false],
  [["disconnect"], true, false],
  [["SIGINT", 999, "SIGINT"], true, false],
  [["SIGINT", 1000, "SIGINT"], true, true],
  [["SIGTERM", "SIGINT"], true, true],
  [["disconnect", "SIGTERM"], true, false],
  [["SIGTERM", "disconnect"], true, false],
])("%o: stop %s, now %s", (events, stop, abort) => {
  expect(after(...events)).toEqual({ stop, abort });
});
