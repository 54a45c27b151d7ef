import { expect, test } from "vitest";
import { exitCode } from "../src/exit.ts";
import { startCommandService } from "./testing/command-service.ts";

/** A language whose compiler refuses all code. */
const strict = {
  file: "main.strict",
  compile: ["sh", "-c", "echo read {file}; echo no >&2; echo never >&2; exit 2"],
  run: ["true"],
};
const { airlock, script } = await startCommandService({
  api: { AIRLOCK_JOB_TYPES: JSON.stringify({ default: { languages: { strict } } }) },
});

test("run takes the language from the file's ending, or by name", async () => {
  const bash = script("args.sh", "echo $BASH_VERSION $1");
  const { code, stdout } = await airlock.run(["run", bash, "one"]);
  expect([code, stdout]).toEqual([0, expect.stringMatching(/^\d.* one\n$/)]);
  const perl = script("plain.txt", "print 6 * 7");
  expect(await airlock.run(["run", "-l", "perl", perl])).toMatchObject({ code: 0, stdout: "42" });
  const unknown = await airlock.run(["run", "-l", "perk", perl]);
  expect([unknown.code, unknown.stderr]).toEqual([126, expect.stringContaining('"perl"')]);
});

test("code that its compiler refuses fails with the compiler's own words", async () => {
  const { code, stdout, stderr } = await airlock.run(["run", "-l", "strict", script("a.x", "x")]);
  expect({ code, stdout, stderr }).toEqual({
    code: exitCode.failed,
    stdout: "",
    stderr: "read /code/main.strict\nno\nnever\nairlock: failed: compile_error: no\n",
  });
  const [id] = (await airlock.run(["ps", "-n", "1"])).stdout.match(/[-0-9a-f]{36}/)!;
  const logs = await airlock.run(["logs", id]);
  expect([logs.code, logs.stderr]).toEqual([0, stderr]);
  const shown = await airlock.run(["show", id]);
  expect(shown.stdout).toMatch(/^compiler {3}exit code 2 after \d+ ms$/m);
});
