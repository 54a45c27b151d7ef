import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { needsThroughout } from "../../../scripts/testing/needs.ts";
import { createProgram } from "../program.ts";
import { completionScript } from "../src/completion.ts";

needsThroughout("zsh");

/** What a zsh without a configuration chooses from, for a line whose last word is being typed. */
function offered(...words: string[]): string[] {
  const script = `${completionScript(createProgram("0"), "zsh")}
compadd() { [[ $1 == -O ]] || print -rl -- "$@" }
compset() { return 1 }
words=(airlock ${words.join(" ")}) CURRENT=$#words
eval "$_comps[airlock]"`;
  const shown = execFileSync("zsh", ["-f", "-c", script], { encoding: "utf8" });
  return shown.split("\n").filter((word) => /^[a-z-]{3,}$/.test(word));
}

test("zsh completes commands, subcommands and options, also where nothing has set up its completion", () => {
  expect(offered("ru")).toContain("run");
  expect(offered("agents", "in")).toContain("invite");
  expect(offered("agents", "in")).not.toContain("run");
  expect(offered("run", "--job")).toContain("--job-type");
});
