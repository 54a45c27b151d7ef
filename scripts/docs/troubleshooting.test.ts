import { globSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { ExecutionErrorType } from "../../shared/wire/errors.ts";

const page = readFileSync("docs/troubleshooting.md", "utf8");
const symptoms = [...page.matchAll(/^\| (.+?) \|/gm)].map(([, symptom = ""]) => symptom);
const quoted = symptoms.flatMap((symptom) => [...symptom.matchAll(/`([^`]+)`/g)].map((m) => m[1]!));

/** What Python, npm and bash say themselves. */
const notOurs = [
  "No space left on device",
  "Read-only file system",
  "syntax error: unexpected end of file",
  "invalid option",
  "numeric argument required",
];

test("every message on docs/troubleshooting.md is one of the service's", () => {
  const files = globSync(["{api,agent,shared,scripts}/**/*.ts", "scripts/run"]);
  const sources = files
    .filter((file) => !/\.test\.ts$|\/testing\//.test(file))
    .map((file) => readFileSync(file, "utf8").replaceAll('\\"', '"'));
  const text = sources.join("\n").replaceAll(/\$\{(?:[^{}]|\{[^{}]*\})*\}|\{\w+\}/g, "…");
  const messages = quoted.filter((words) => words.includes(" ") && !notOurs.includes(words));
  expect(messages.length).toBeGreaterThan(40);
  const unknown = messages.filter((message) =>
    message.split("…").some((piece) => !text.includes(piece.trim())),
  );
  expect(unknown).toEqual([]);
});

test("every error type on docs/troubleshooting.md exists", () => {
  const types = quoted.filter((word) => /^[a-z]+(_[a-z]+)*$/.test(word));
  expect(types).toContain("import_error");
  expect(types.filter((type) => !ExecutionErrorType.safeParse(type).success)).toEqual([]);
});
