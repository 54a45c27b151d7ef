import { readFileSync } from "node:fs";

const modules = ["privileges", "link", "relay", "job", "supervisor"];
const whenNeeded = ["collect"];
const single = { program: programOf(modules), gate: source("gate") };
const reused = {
  program: programOf([...modules, "wipe", "reuse"]),
  gate: source("zygote") + source("gate"),
};

/**
 * The command of a sandbox's PID 1: it reads its program from stdin, so that any image with
 * python3 ≥ 3.8 will do. With the program as an argument the engine, which writes all of a
 * container's settings down at each of its steps, took an eighth more CPU time for a container.
 */
export const supervisorCommand: readonly string[] = [
  "python3",
  "-I",
  "-S",
  "-u",
  "-c",
  source("boot"),
];

/** The program, for one job or for several: the first that goes to its stdin. */
export function supervisorProgram(preload: readonly string[], isReused: boolean): Buffer {
  const { program, gate } = isReused ? reused : single;
  const main = `sys.modules["supervisor"].main(${JSON.stringify(gate)}, ${JSON.stringify(preload)})`;
  const text = Buffer.from(`${program}${main}\n`);
  const size = Buffer.alloc(4);
  size.writeUInt32BE(text.length);
  return Buffer.concat([size, text]);
}

function programOf(names: readonly string[]): string {
  return loadModules(sources(names), sources(whenNeeded));
}

/**
 * The head of a Python program that makes modules of their sources, each able to import those
 * before it, and `load` for the others.
 */
export function loadModules(
  modules: Readonly<Record<string, string>>,
  others: Readonly<Record<string, string>> = {},
): string {
  // A JSON string is a Python string, too.
  return `import sys
others = ${JSON.stringify(others)}
def load(name, text=None):
    module = sys.modules[name] = type(sys)(name)
    exec(compile(text or others[name], "airlock/%s.py" % name, "exec"), module.__dict__)
    return module
for name, text in ${JSON.stringify(modules)}.items():
    load(name, text)
`;
}

function sources(names: readonly string[]): Record<string, string> {
  return Object.fromEntries(names.map((name) => [name, source(name)]));
}

export function source(name: string): string {
  return readFileSync(new URL(`inside/${name}.py`, import.meta.url), "utf8");
}
