import { readFileSync } from "node:fs";
import { asFirstBytes, loadModules, source } from "../sandbox/supervisor.ts";

/** Modules that jobs share with the engine's way, from agent/sandbox/inside. */
const shared = ["files", "privileges", "link", "relay", "job", "usage", "supervisor", "collect"];

const ofMother = sources([
  "files",
  "link",
  "privileges",
  "kernel",
  "jobs_request",
  "switch",
  "groups",
  "zygotes",
  "jobs",
  "mother",
]);
const ofUnpacker = sources(["files", "unpack"]);
const ofSets = sources(["unpack", "sets"]);
const ofJobs = sources([
  ...shared.slice(0, 2),
  "ids",
  "kernel",
  "jobs_request",
  "enter",
  ...shared.slice(2),
]);

export interface MotherSettings {
  /** First id and length of the range that all zygotes use. Under a rootless engine, ids.py chooses another range. */
  readonly ids: readonly [first: number, count: number];
  readonly hostname: string;
  /** Jobs that run at once: each gets a part of what the kernel counts for all of them together. */
  readonly slots: number;
  /** Limits of a zygote's user namespace by name, in /proc/sys/user. */
  readonly closed_limits: Readonly<Record<string, number>>;
}

/** What the mother's PID 1 reads from stdin first. */
export function motherProgram(settings: MotherSettings): Buffer {
  return programOf(ofMother, "mother", settings);
}

export interface UnpackSettings {
  readonly ids: readonly [first: number, count: number];
  /** Name of the folder to make. */
  readonly name: string;
  readonly hostname: string;
}

/** The program that unpacks the files of an image, which follow it on stdin as a tar. */
export function unpackProgram(settings: UnpackSettings): Buffer {
  return programOf(ofUnpacker, "unpack", settings);
}

export interface SetsSettings {
  readonly ids: readonly [first: number, count: number];
  /** Name of the set whose files follow on stdin; null for none. */
  readonly name: string | null;
  /** Bytes that it may have. */
  readonly room: number;
  /** Names of sets to remove, unless they are in use. */
  readonly remove: readonly string[];
}

/** The program that adds and removes sets of packages. It prints what there is then, as JSON. */
export function setsProgram(settings: SetsSettings): Buffer {
  return programOf(ofSets, "sets", settings);
}

function programOf(texts: Record<string, string>, main: string, settings: object): Buffer {
  return asFirstBytes(`${loadModules({ ids: inside("ids"), ...texts })}import ids, json
sys.modules[${JSON.stringify(main)}].main(ids.fit(json.loads(${JSON.stringify(JSON.stringify(settings))})))
`);
}

/** Where a zygote finds its gate; the file is its `sitecustomize`. */
export const gateFolder = "/code/.gate";
/** Descriptors of an interpreter at the gate: go, tell, and the zygote's control socket. */
const descriptors = [1022, 1023, 1021];

/** The text that a zygote's interpreter meets while it starts. JSON of strings is Python, too. */
export function gateText(
  pythonPath: string | undefined,
  preload: readonly string[],
  codeFilter: Buffer,
  memoryBytes: number,
): string {
  const path = pythonPath === undefined ? "None" : JSON.stringify(pythonPath);
  const settings = `(${descriptors.join(", ")}, ${JSON.stringify(gateFolder)}, ${path}, ${JSON.stringify(preload)})`;
  // The kernel counts what a process has inherited when it looks for one to kill: PID 1 of a job
  // must not be the largest.
  const mostInherited = Math.floor(memoryBytes / 2);
  const forks = `(${JSON.stringify(ofJobs)}, bytes.fromhex("${codeFilter.toString("hex")}"), ${mostInherited})`;
  const gate = source("gate").replace('= "settings"', () => `= ${settings}`);
  return inside("forks").replace('= "forks"', () => `= ${forks}`) + gate;
}

function sources(names: readonly string[]): Record<string, string> {
  return Object.fromEntries(names.map((name) => [name, textOf(name)]));
}

function textOf(name: string): string {
  return shared.includes(name) ? source(name) : inside(name);
}

function inside(name: string): string {
  return readFileSync(new URL(`inside/${name}.py`, import.meta.url), "utf8");
}
