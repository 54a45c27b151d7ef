import { expect, test } from "vitest";
import { explainPipFailure } from "./pip-errors.ts";

test.each([
  [
    "the lines marked as errors",
    "Looking in links: /x\nERROR: Could not find a version\nERROR: No matching distribution found for a\n",
    "ERROR: Could not find a version\nERROR: No matching distribution found for a",
  ],
  [
    "of retries the last",
    "WARNING: Retrying (Retry(total=1)) after X\nWARNING: Retrying (Retry(total=0)) after Y\nERROR: No matching",
    "WARNING: Retrying (Retry(total=0)) after Y\nERROR: No matching",
  ],
  [
    "an index that is not trusted",
    "Could not fetch URL https://i/: There was a problem confirming the ssl certificate\nERROR: No",
    "Could not fetch URL https://i/: There was a problem confirming the ssl certificate\nERROR: No",
  ],
  [
    "of an exception its last line",
    "ERROR: Exception:\nTraceback (most recent call last):\n  File x\nOSError: disk full\n",
    "ERROR: Exception:\nOSError: disk full",
  ],
  [
    "else the last line",
    "one\n/usr/bin/python3: No module named pip\n\n",
    "/usr/bin/python3: No module named pip",
  ],
  ["of silence the exit code", "\n", "Pip ended with exit code 3."],
])("%s", (_what, log, words) => {
  expect(explainPipFailure(log, 3)).toBe(words);
});

test("a message is short enough to read", () => {
  const log = `ERROR: ${"x".repeat(5000)}\n`.repeat(9);
  expect(explainPipFailure(log, 1).length).toBeLessThanOrEqual(2000);
});
