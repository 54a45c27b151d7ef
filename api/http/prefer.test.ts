import { expect, test } from "vitest";
import { preferredWaitS } from "./prefer.ts";

test.each([
  ["wait=10", 10],
  ["respond-async, wait=5", 5],
  ['WAIT = "7" ; x=1', 7],
  ["wait=3, wait=9", 3],
  ["wait=0", 0],
  ["wait=999999999", 86_400],
  ["wait=-1", undefined],
  ["wait=soon", undefined],
  ["wait", undefined],
  ["await=3", undefined],
  ["", undefined],
  [undefined, undefined],
])("Prefer: %s waits %s s", (header, seconds) => {
  expect(preferredWaitS(header)).toBe(seconds);
});
