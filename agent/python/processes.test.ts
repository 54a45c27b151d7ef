import { globSync } from "node:fs";
import { dirname } from "node:path";
import { expect, test } from "vitest";
import { programs, source } from "./program.ts";

/** The processes of each program: the one that gets it, and those that it forks. */
const processes: Record<keyof typeof programs, readonly string[]> = {
  mother: ["mother"],
  zygote: ["zygote", "pid1", "interpreter", "collector"],
  pid1: ["pid1", "interpreter", "collector"],
  packages: ["pid1"],
  installer: ["installer"],
  unpacker: ["unpacker"],
  bundles: ["unpacker"],
};

/** How the first line of a file names the process of a folder. */
const names: Record<string, RegExp> = {
  mother: /^the mother('s child)?$/,
  zygote: /^a zygote$/,
  pid1: /^PID 1 of a (forked )?sandbox$/,
  interpreter: /^the code's interpreter( and in a zygote)?$/,
  collector: /^the collector$/,
  installer: /^(the installer|pip)$/,
  unpacker: /^the unpacker$/,
};

/** How it names the processes of each program, where the file is in common/. */
const inCommon: Record<keyof typeof programs, string> = {
  mother: "the mother",
  zygote: "a zygote",
  pid1: "PID 1",
  packages: "PID 1",
  installer: "the installer",
  unpacker: "the unpacker",
  bundles: "the unpacker",
};

const kinds = Object.keys(programs) as (keyof typeof programs)[];
const modules = globSync("*/*.py", { cwd: import.meta.dirname }).map((file) =>
  file.replace(/\.py$/, ""),
);
const isCommon = (module: string): boolean => dirname(module) === "common";
/** What the first line says of where the module runs; it also says as whom, and from when to when. */
function saidOf(module: string): string {
  const [first = ""] = source(module).split("\n");
  return /^(?:"""|# )Runs in (.+?), as .+?, from .+ to .+\.$/.exec(first)?.[1] ?? first;
}

test.each(modules.filter((module) => !isCommon(module)))("%s says where it runs", (module) => {
  expect(saidOf(module)).toMatch(names[dirname(module)]!);
});

test.each(modules.filter(isCommon))("%s says which processes get it", (module) => {
  const sent = kinds
    .filter((kind) => programs[kind].includes(module))
    .map((kind) => inCommon[kind]);
  // Every container's command, which reads the program.
  const all = module === "common/boot" ? ["the mother", "the unpacker", "PID 1"] : sent;
  expect(new Set(saidOf(module).split(/, | and /))).toEqual(new Set(all));
});

test.each(kinds)("the program %s has modules of its own processes and of common/ alone", (kind) => {
  const folders = new Set(programs[kind].map((module) => dirname(module)));
  folders.delete("common");
  expect([...folders].filter((folder) => !processes[kind].includes(folder))).toEqual([]);
});
