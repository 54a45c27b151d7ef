import { readFileSync } from "node:fs";

/**
 * The modules of each process's program, in the order that they are loaded: each can import those before it. The
 * first line of every file in this folder says in which process it runs. A fork of a process has its modules.
 */
export const programs = {
  mother: ["link", "kernel", "ids", "birth", "mother"],
  zygote: [
    "kernel",
    "ids",
    "link",
    "job",
    "supervisor",
    "forks",
    "collector",
    "session",
    "tools",
    "cells",
    "serve",
    "gate",
    "zygote",
  ],
  pid1: [
    "kernel",
    "link",
    "job",
    "supervisor",
    "collector",
    "session",
    "gate",
    "tools",
    "cells",
    "serve",
  ],
  /** Comes to PID 1 with an order to install packages. */
  packages: ["packages"],
  installer: ["link", "packages", "build"],
  unpacker: ["ids", "unpack"],
} satisfies Readonly<Record<string, readonly string[]>>;

/** Modules that are compiled with the others, but loaded when they are needed. */
const ofCells = ["tools", "cells", "serve"];
const apart = ["session", "collector", "gate", "zygote", ...ofCells];

/**
 * The command of a container's PID 1, of the mother and of the unpacker: it runs as root from the container's start to
 * its end. It reads its program from stdin, so any image with python3 ≥ 3.9 works. With the program as an argument, the
 * engine took an eighth more CPU time for a container (measured), because it writes all of a container's settings to
 * disk at each step.
 */
export const pid1Command: readonly string[] = [
  "python3",
  "-I",
  "-S",
  "-u",
  "-c",
  `import posix


def take(size):
    data = b""
    while len(data) < size:
        piece = posix.read(0, size - len(data))
        if not piece:
            posix._exit(0)
        data += piece
    return data


exec(compile(take(int.from_bytes(take(4), "big")), "airlock", "exec"))
`,
];

/** A program as the command above reads it: its size in 4 bytes, big-endian, and its text. */
function asFirstBytes(program: string): Buffer {
  const text = Buffer.from(program);
  const size = Buffer.alloc(4);
  size.writeUInt32BE(text.length);
  return Buffer.concat([size, text]);
}

/** Bytecode is valid only for the Python version with the same magic number. */
const magic = `import marshal
import sys
magic = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER
`;

/** Kept as bytes, so that jobs that do not need them pay nothing. */
const packed = (names: readonly string[]): string => `import marshal
for name in ${JSON.stringify(names)}:
    codes[name] = marshal.dumps(codes[name])
`;

const loading = `def load(name, text=None):
    module = sys.modules[name] = type(sys)(name)
    code = compile(text, "airlock/%s.py" % name, "exec") if text else codes[name]
    exec(marshal.loads(code) if type(code) is bytes else code, module.__dict__)
    return module
`;

const ofPid1 = sources(programs.pid1);
const packedOfPid1 = apart.filter((name) => name in ofPid1);

/** Modules that come to PID 1 of a container with its first session or cell. */
const later = [...ofCells, "session"];

/** Bytecode that a supervisor compiled from its program, for others with the same Python; see main in supervisor.py. */
export interface Bytecode {
  readonly program: Uint8Array;
  /** Modules of sessions and cells: the frame B brings them, before what needs them. */
  readonly later: Uint8Array;
}

/**
 * The program of a sandbox's PID 1: the first bytes that go to its stdin.
 *
 * Without bytecode the container compiles it, which takes as long as the start of the interpreter.
 */
export function supervisorProgram(
  preload: readonly string[],
  bytecode: Bytecode | null = null,
): Buffer {
  const codes =
    bytecode === null
      ? `${compiled(ofPid1)}${packed(packedOfPid1)}later = {name: codes.pop(name) for name in ${JSON.stringify(later)}}
told = [magic + marshal.dumps(codes), marshal.dumps(later)]
codes.update(later)
`
      : `told = []
if take(4) != magic:
    raise SystemExit("bytecode of another Python")
codes = marshal.loads(take(${bytecode.program.length - 4}))
`;
  const run = `for name in ${JSON.stringify(programs.pid1.filter((name) => !apart.includes(name)))}:
    load(name)
sys.modules["supervisor"].main(load, codes, ${JSON.stringify(preload)}, told)
`;
  const program = asFirstBytes(magic + codes + loading + run);
  return bytecode === null ? program : Buffer.concat([program, bytecode.program]);
}

/** Id range of zygotes: the first id, and the number of ids. */
type IdRange = readonly [first: number, count: number];

export interface MotherSettings {
  /** What all zygotes use. Under a rootless engine, ids.py chooses another range. */
  readonly ids: IdRange;
  readonly hostname: string;
  /** Jobs that run at once: each gets a part of what the kernel counts for all of them together. */
  readonly slots: number;
  /** Limits of a zygote's user namespace by name, in /proc/sys/user. */
  readonly closed_limits: Readonly<Record<string, number>>;
}

export function motherProgram(settings: MotherSettings): Buffer {
  return programOf("mother", "mother.main", settings);
}

interface UnpackSettings {
  readonly ids: IdRange;
  /** Name of the folder to make. */
  readonly name: string;
  readonly hostname: string;
}

/** The program that unpacks the files of an image, which follow it on stdin as a tar. */
export function unpackProgram(settings: UnpackSettings): Buffer {
  return programOf("unpacker", "unpack.unpack_image", settings);
}

interface BundlesSettings {
  readonly ids: IdRange;
  /** Name of the bundle whose files follow on stdin; null for none. */
  readonly name: string | null;
  /** Bytes that it may have. */
  readonly room: number;
  /** Names of bundles to remove, unless they are in use. */
  readonly remove: readonly string[];
}

/** The program that adds and removes bundles. It prints what there is then, as JSON. */
export function bundlesProgram(settings: BundlesSettings): Buffer {
  return programOf("unpacker", "unpack.change_bundles", settings);
}

/** The program of the container that becomes an image; build.py describes its stdin. */
export const installerProgram = `${loadModules(sources(programs.installer))}import build
build.install_into_image()
`;

/** What an order to install packages brings to PID 1: its modules, and the program that runs pip. */
export const packagesModules = sources(programs.packages);
export const pipRunner = source("run_pip");

/** Where a zygote finds its gate; the file is its `sitecustomize`. */
export const gateFolder = "/code/.gate";
/** Descriptors of an interpreter at the gate, go and tell, and the zygote's control socket. */
const [goFd, tellFd, controlFd] = [1022, 1023, 1021];

/**
 * Compiles what a zygote runs, and becomes the zygote: what Python makes for `compile` would be in each job, which
 * would end with it (0.4 ms). JSON of strings is Python, too.
 */
export function zygoteProgram(
  pythonPath: string | undefined,
  preload: readonly string[],
  codeFilter: Buffer,
  memoryBytes: number,
): string {
  const path = pythonPath === undefined ? "None" : JSON.stringify(pythonPath);
  const folder = JSON.stringify(gateFolder);
  const ofGate = `(${goFd}, ${tellFd}, ${folder}, ${path}, ${JSON.stringify(preload)})`;
  const atOnce = programs.zygote.filter((name) => !apart.includes(name));
  // When memory runs out, the kernel kills the largest process and counts inherited memory. PID 1 of a job
  // must not be the largest.
  const mostInherited = Math.floor(memoryBytes / 2);
  const own = `${JSON.stringify(atOnce)}, ${controlFd}, bytes.fromhex("${codeFilter.toString("hex")}"), ${mostInherited}`;
  return `${compiled(sources(programs.zygote))}${packed(ofCells)}zygote = {}
exec(codes["zygote"], zygote)
zygote["begin"](codes, ${folder}, ${ofGate}, ${own})
`;
}

/** A program that calls one function of its modules with the settings. */
function programOf(kind: keyof typeof programs, main: string, settings: object): Buffer {
  const [module] = main.split(".");
  return asFirstBytes(`${loadModules(sources(programs[kind]))}import ids, json, ${module}
${main}(ids.fit(json.loads(${JSON.stringify(JSON.stringify(settings))})))
`);
}

/** A Python program that creates modules from sources; each can import those before it. */
export function loadModules(modules: Readonly<Record<string, string>>): string {
  return `import sys
${compiled(modules)}${loading}for name in codes:
    load(name)
`;
}

/** A JSON string is also a Python string. Texts that only people read would be in each container's memory. */
function compiled(texts: Readonly<Record<string, string>>): string {
  return `codes = {
    name: compile(text, "airlock/%s.py" % name, "exec", optimize=2)
    for name, text in ${JSON.stringify(texts)}.items()
}
`;
}

/** Texts by the names under which Python imports them. */
export function sources(modules: readonly string[]): Record<string, string> {
  return Object.fromEntries(modules.map((module) => [module, source(module)]));
}

/** The text of a module, such as "link". */
export function source(module: string): string {
  return readFileSync(new URL(`${module}.py`, import.meta.url), "utf8");
}
