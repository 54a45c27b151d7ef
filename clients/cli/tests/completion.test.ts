import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { completionScript } from "../src/completion.ts";
import { createProgram } from "../program.ts";

/** What bash would offer for a line whose last word is being typed. */
function offered(...words: string[]): string[] {
  const script = `${completionScript(createProgram("0"), "bash")}
COMP_WORDS=(airlock ${words.map((word) => `'${word}'`).join(" ")})
COMP_CWORD=${words.length}
_airlock
printf '%s\\n' "\${COMPREPLY[@]}"`;
  return execFileSync("bash", ["-c", script], { encoding: "utf8" }).trim().split("\n");
}

test("bash completes commands, subcommands and options", () => {
  expect(offered("ru")).toEqual(["run"]);
  expect(offered("agents", "in")).toEqual(["invite"]);
  expect(offered("agents", "invite", "--na")).toEqual(["--name"]);
  expect(offered("run", "--job")).toEqual(["--job-type"]);
  expect(offered("run", "--url")).toEqual(["--url"]);
});

test("after a file's place, bash completes files", () => {
  expect(offered("run", "package.js")).toEqual(["package.json"]);
});
