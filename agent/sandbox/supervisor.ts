import { readFileSync } from "node:fs";

const modules = ["privileges", "link", "relay", "job", "collect", "supervisor"] as const;
const gate = source("gate");
const bootstrap = `import sys
for name, text in ${pythonDict(Object.fromEntries(modules.map((name) => [name, source(name)])))}.items():
    module = sys.modules[name] = type(sys)(name)
    exec(compile(text, "airlock/%s.py" % name, "exec"), module.__dict__)
sys.modules["supervisor"].main(*sys.argv[1:])
`;

/**
 * The command of a sandbox's PID 1. It carries the whole supervisor, so that any image with
 * python3 ≥ 3.8 will do; every process inside can read it.
 */
export function supervisorCommand(preload: readonly string[]): string[] {
  return ["python3", "-I", "-S", "-u", "-c", bootstrap, gate, ...preload];
}

function source(name: string): string {
  return readFileSync(new URL(`inside/${name}.py`, import.meta.url), "utf8");
}

/** A JSON string is a Python string, too. */
function pythonDict(texts: Record<string, string>): string {
  return JSON.stringify(texts);
}
