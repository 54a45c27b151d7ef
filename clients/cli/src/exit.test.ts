import { expect, test } from "vitest";
import { NotFoundError, type Problem } from "../../typescript/src/index.ts";
import { explainFailure } from "./exit.ts";

test("the hint where to look depends on the command, not on the words of the refusal", () => {
  const detail = "Any words.";
  const error = new NotFoundError(404, detail, {
    problem: { code: "not_found", detail, correlation_id: "c" } as Problem,
  });
  expect(explainFailure(error, "airlock ps")).toBe(
    "Any words. airlock ps lists those that do.\n(not_found · c)",
  );
  expect(explainFailure(error)).toBe("Any words.\n(not_found · c)");
});
