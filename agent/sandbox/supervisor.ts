import { readFileSync } from "node:fs";

const always = ["privileges", "link", "relay", "job", "collect", "supervisor"];
const single = { program: programOf(always), gate: source("gate") };
const reused = {
  program: programOf([...always, "wipe", "reuse"]),
  gate: source("zygote") + source("gate"),
};

/**
 * The command of a sandbox's PID 1, for one job or for several. It carries the whole supervisor, so
 * that any image with python3 ≥ 3.8 will do; every process inside can read it.
 */
export function supervisorCommand(preload: readonly string[], isReused = false): string[] {
  const { program, gate } = isReused ? reused : single;
  return ["python3", "-I", "-S", "-u", "-c", program, gate, ...preload];
}

function programOf(names: readonly string[]): string {
  const sources = Object.fromEntries(names.map((name) => [name, source(name)]));
  return `${loadModules(sources)}sys.modules["supervisor"].main(*sys.argv[1:])\n`;
}

/** A Python program that makes modules of their sources, each able to import those before it. */
export function loadModules(modules: Readonly<Record<string, string>>): string {
  // A JSON string is a Python string, too.
  return `import sys
for name, text in ${JSON.stringify(modules)}.items():
    module = sys.modules[name] = type(sys)(name)
    exec(compile(text, "airlock/%s.py" % name, "exec"), module.__dict__)
`;
}

export function source(name: string): string {
  return readFileSync(new URL(`inside/${name}.py`, import.meta.url), "utf8");
}
