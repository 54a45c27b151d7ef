import { expect, test } from "vitest";
import { canonicalJson } from "../../shared/json.ts";
import { identityOf } from "./submission.ts";

const request = {
  code: "print(1)",
  input_data: { b: 1, a: [2] },
  timeout: undefined,
  startup_timeout: 60,
  job_type: "default",
  requirements: [],
  idempotency_key: "k",
};

test("a submission without newer fields has the text that the first version stored the hash of", () => {
  expect(canonicalJson(identityOf(request))).toBe(
    '["print(1)",{"a":[2],"b":1},null,60,"default",[]]',
  );
});

test("a rerun has another text than the same submission, and than a rerun of another job", () => {
  const of = (parentExecutionId: string) =>
    canonicalJson(identityOf(request, { parentExecutionId, relationship: "rerun" }));
  expect(new Set([canonicalJson(identityOf(request)), of("a"), of("b")]).size).toBe(3);
});
