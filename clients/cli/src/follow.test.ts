import { expect, test } from "vitest";
import { type EndedRecord, explainEnd } from "./follow.ts";

const error = { type: "value_error", message: "ValueError: no" };

test.each([
  [{ status: "succeeded", exit_code: 0, error: null }, undefined],
  [{ status: "failed", exit_code: 1, error }, "failed (exit code 1): value_error"],
  [{ status: "failed", exit_code: 0, error }, "failed (exit code 0): value_error: ValueError: no"],
  [{ status: "failed", exit_code: null, error }, "failed: value_error: ValueError: no"],
  [{ status: "timeout", exit_code: null, error }, "timeout: value_error: ValueError: no"],
  [{ status: "cancelled", exit_code: null, error: null }, "cancelled"],
])("how a job ended is told once: %o", (record, told) => {
  expect(explainEnd(record as unknown as EndedRecord)).toBe(told);
});
