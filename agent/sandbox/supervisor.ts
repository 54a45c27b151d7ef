import { readFileSync } from "node:fs";

const modules = ["files", "privileges", "link", "relay", "job", "supervisor"];
const single = { modules, texts: sources([...modules, "collect", "gate"]) };
const reused = {
  modules: [...modules, "wipe", "reuse"],
  texts: {
    ...sources([...modules, "wipe", "reuse", "collect"]),
    gate: source("zygote") + source("gate"),
  },
};

/**
 * The command of a sandbox's PID 1: it reads its program from stdin, so that any image with
 * python3 ≥ 3.9 will do. With the program as an argument the engine, which writes all of a
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

/** What a supervisor made of its program's sources, for others with the same Python; see main in supervisor.py. */
export type Bytecode = Uint8Array;

/**
 * The program, for one job or for several: the first that goes to its stdin.
 *
 * Without bytecode it is compiled over there, which takes as long as the interpreter's own start.
 */
export function supervisorProgram(
  preload: readonly string[],
  isReused: boolean,
  bytecode: Bytecode | null = null,
): Buffer {
  const { modules, texts } = isReused ? reused : single;
  const codes = bytecode === null ? compiled(texts) : `codes = unpack(take(${bytecode.length}))\n`;
  const run = `for name in ${JSON.stringify(modules)}:
    load(name)
sys.modules["supervisor"].main(codes, ${JSON.stringify(preload)}, ${bytecode === null ? "pack" : "None"})
`;
  const text = Buffer.from(packing + codes + loading + run);
  const size = Buffer.alloc(4);
  size.writeUInt32BE(text.length);
  return Buffer.concat([size, text, bytecode ?? new Uint8Array()]);
}

/** A Python program that makes modules of their sources, each able to import those before it. */
export function loadModules(modules: Readonly<Record<string, string>>): string {
  return `import sys
${compiled(modules)}${loading}for name in codes:
    load(name)
`;
}

/** Python's bytecode is for the version that made it, which its magic number tells. */
const packing = `import marshal
import sys
magic = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER
def pack(codes):
    return magic + marshal.dumps(codes)
def unpack(data):
    if data[:4] != magic:
        raise SystemExit("bytecode of another Python")
    return marshal.loads(data[4:])
`;

const loading = `def load(name, text=None):
    module = sys.modules[name] = type(sys)(name)
    exec(compile(text, "airlock/%s.py" % name, "exec") if text else codes[name], module.__dict__)
    return module
`;

/** A JSON string is a Python string, too. */
function compiled(texts: Readonly<Record<string, string>>): string {
  return `codes = {
    name: compile(text, "airlock/%s.py" % name, "exec")
    for name, text in ${JSON.stringify(texts)}.items()
}
`;
}

function sources(names: readonly string[]): Record<string, string> {
  return Object.fromEntries(names.map((name) => [name, source(name)]));
}

export function source(name: string): string {
  return readFileSync(new URL(`inside/${name}.py`, import.meta.url), "utf8");
}
