import { getLogger } from "@logtape/logtape";
import { expect, it } from "vitest";
import { createRuntimeChoice } from "./runtime-choice.ts";

const log = getLogger(["airlock", "agent"]);

it.each([
  [null, false, ["runc", "runsc"], null],
  ["runsc", false, ["runc", "runsc"], "runsc"],
  ["runsc", false, ["runc"], null],
  ["runsc", true, ["runc", "runsc"], "runsc"],
])("%s, strict %s, of %o: %s", (runtime, strict, runtimes, chosen) => {
  expect(createRuntimeChoice({ runtime, strict }, log)(runtimes)).toBe(chosen);
});

it("never falls back when strict", () => {
  const choose = createRuntimeChoice({ runtime: "runsc", strict: true }, log);
  expect(() => choose(["runc"])).toThrowError(
    "security_mode strict requires the runtime runsc, which this agent's engine lacks",
  );
});
