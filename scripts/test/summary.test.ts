import { expect, test } from "vitest";
import { summarize } from "./summary.ts";

const report = {
  numPassedTests: 3,
  numFailedTests: 0,
  numPendingTests: 0,
  numTodoTests: 0,
  testResults: [{ status: "passed", assertionResults: [{}] }],
};

test("counts what passed and failed", () => {
  expect(summarize(report)).toBe("3 passed, 0 failed");
  expect(summarize({ ...report, numFailedTests: 2 })).toBe("3 passed, 2 failed");
});

test("names skipped tests where there are some", () => {
  expect(summarize({ ...report, numPendingTests: 1, numTodoTests: 1 })).toBe(
    "3 passed, 0 failed, 2 skipped",
  );
});

test("a file that could not even run is a failure", () => {
  const testResults = [{ status: "failed", assertionResults: [] }];
  expect(summarize({ ...report, testResults })).toBe("3 passed, 1 failed");
});
