import { expect, test } from "vitest";
import { type EndedRecord, exitCodeOfRecord, explainEnd } from "./follow.ts";

// The message says more than the traceback that the code has written.
const message = "ModuleNotFoundError: No module named 'a'. The requirements were not installed";
const error = { type: "import_error", message };

test.each([
  [{ status: "succeeded", exit_code: 0 }, 0],
  [{ status: "failed", exit_code: 3, error }, 3],
  [{ status: "failed", exit_code: 0, error: { type: "json_error", message } }, 1],
  [{ status: "failed", exit_code: null, error }, 125],
  [{ status: "failed", exit_code: null, error: { type: "compile_error", message } }, 1],
])("the command fails where the record says so: %o", (record, code) => {
  expect(exitCodeOfRecord(record as unknown as EndedRecord)).toBe(code);
});

test.each([
  [{ status: "succeeded", exit_code: 0, error: null }, undefined],
  [{ status: "failed", exit_code: 1, error }, `failed (exit code 1): import_error: ${message}`],
  [{ status: "timeout", exit_code: null, error }, `timeout: import_error: ${message}`],
  [{ status: "cancelled", exit_code: null, error: null }, "cancelled"],
  [
    { status: "cancelled", exit_code: 143, error: { type: "cancelled", message: "It was." } },
    "cancelled (exit code 143): It was.",
  ],
])("the end of a job is shown with its whole message: %o", (record, told) => {
  expect(explainEnd(record as unknown as EndedRecord)).toBe(told);
});
