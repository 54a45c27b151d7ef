import { readFileSync } from "node:fs";

const modules = ["files", "privileges", "link", "relay", "job", "usage", "supervisor"];
const texts = sources([...modules, "collect", "gate"]);

/**
 * The command of a sandbox's PID 1. It reads its program from stdin, so any image with python3 ≥
 * 3.9 works. With the program as an argument, the engine took an eighth more CPU time for a
 * container (measured), because it writes all of a container's settings to disk at each step.
 */
export const supervisorCommand: readonly string[] = [
  "python3",
  "-I",
  "-S",
  "-u",
  "-c",
  source("boot"),
];

/**
 * Bytecode that a supervisor compiled from its program, for others with the same Python; see main
 * in supervisor.py.
 */
export type Bytecode = Uint8Array;

/**
 * The program: the first bytes that go to PID 1's stdin.
 *
 * Without bytecode the container compiles it, which takes as long as the start of the interpreter.
 */
export function supervisorProgram(
  preload: readonly string[],
  bytecode: Bytecode | null = null,
): Buffer {
  const codes = bytecode === null ? compiled(texts) : `codes = unpack(take(${bytecode.length}))\n`;
  const run = `for name in ${JSON.stringify(modules)}:
    load(name)
sys.modules["supervisor"].main(codes, ${JSON.stringify(preload)}, ${bytecode === null ? "pack" : "None"})
`;
  const program = asFirstBytes(packing + codes + loading + run);
  return bytecode === null ? program : Buffer.concat([program, bytecode]);
}

/** A program as inside/boot.py reads it: its size in 4 bytes, big-endian, and its text. */
export function asFirstBytes(program: string): Buffer {
  const text = Buffer.from(program);
  const size = Buffer.alloc(4);
  size.writeUInt32BE(text.length);
  return Buffer.concat([size, text]);
}

/** A Python program that creates modules from sources; each can import those before it. */
export function loadModules(modules: Readonly<Record<string, string>>): string {
  return `import sys
${compiled(modules)}${loading}for name in codes:
    load(name)
`;
}

/** Bytecode is valid only for the Python version with the same magic number. */
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
    module.load = load
    exec(compile(text, "airlock/%s.py" % name, "exec") if text else codes[name], module.__dict__)
    return module
`;

/** A JSON string is also a Python string. */
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
