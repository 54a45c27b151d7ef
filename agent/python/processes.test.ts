import { globSync } from "node:fs";
import { basename } from "node:path";
import { expect, test } from "vitest";
import { programs, source } from "./program.ts";

/** How the first line of a file names the process that runs a program, and those that it forks or starts. */
const processes: Record<keyof typeof programs, readonly string[]> = {
  mother: ["the mother", "its child"],
  zygote: ["a zygote", "PID 1 of a forked sandbox", "the code's interpreter", "the collector"],
  pid1: ["PID 1 of a sandbox", "the code's interpreter", "the collector"],
  packages: ["PID 1"],
  installer: ["the installer"],
  unpacker: ["the unpacker"],
};

const kinds = Object.keys(programs) as (keyof typeof programs)[];
const modules = globSync("*.py", { cwd: import.meta.dirname }).map((file) => basename(file, ".py"));

/** What the first line says of where the module runs; it also says as whom, and from when to when. */
function saidOf(module: string): string[] {
  const [first = ""] = source(module).split("\n");
  const said = /^(?:"""|# )Runs in (.+?), as .+?, from .+ to .+\.$/.exec(first)?.[1] ?? first;
  return said.split(/, | and (?:in )?/);
}

/** PID 1 of a fork is that of a sandbox too, and what both kinds run says so shortly. */
const isOf = (kind: keyof typeof programs, said: string): boolean =>
  processes[kind].some((process) => process === said || process.startsWith(`${said} of `)) ||
  (kind === "zygote" && said === "PID 1 of a sandbox");

test.each(modules)("the first line of %s names processes of each program that has it", (module) => {
  const said = saidOf(module);
  const having = kinds.filter((kind) => programs[kind].some((each) => each === module));
  // pip, which PID 1 starts, gets its text alone.
  const isPip = having.length === 0 && module === "run_pip" && said.join() === "pip";
  const unsaid = having.filter((kind) => !said.some((process) => isOf(kind, process)));
  const wrong = said.filter((process) => !having.some((kind) => isOf(kind, process)));
  expect({ unsaid, wrong }).toEqual({ unsaid: [], wrong: isPip ? ["pip"] : [] });
});
