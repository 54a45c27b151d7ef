import { PassThrough } from "node:stream";
import { encodeFrame, frameDecoder, type Link, maxPayloadBytes } from "../sandbox/frames.ts";
import type { SandboxJob } from "../sandbox/job.ts";

/** Frames as an honest supervisor sends them. */
export const json = (type: string, value: unknown): Buffer =>
  encodeFrame(type, Buffer.from(JSON.stringify(value)));
export const ready = json("R", { python_version: "3.13.5", preload_errors: {} });
export const started = encodeFrame("S");
export const summary = json("Z", { result_problem: null, skipped: [] });
export const exitedWell = {
  ending: "exited",
  exit_status: 0,
  exit_signal: null,
  out_of_memory: false,
  exception: null,
  wall_ms: 1.5,
  cpu_ms: 1,
  max_rss_bytes: 1000,
  truncated: [false, false],
};
export const exit = json("X", exitedWell);
export const fileHead = (name: string, size: number, result = false): Buffer =>
  json("A", { name, size, result });
export const data = (text: string): Buffer => encodeFrame("D", Buffer.from(text));

/** A supervisor that sends what the test tells it to. */
export function fakeSupervisor() {
  const input = new PassThrough();
  const output = new PassThrough();
  const heard: string[] = [];
  const decode = frameDecoder();
  input.on("data", (chunk: Buffer) => heard.push(...decode(chunk).map(({ type }) => type)));
  const link: Link = {
    input,
    output,
    diagnostics: () => "Traceback: its own",
    destroy: () => output.destroy(),
  };
  return { link, heard, output, say: (...frames: Buffer[]) => output.write(Buffer.concat(frames)) };
}

export const job: SandboxJob = {
  code: "print(1)",
  inputJson: "{}",
  timeoutMs: 60_000,
  caps: { streamBytes: 1000, artifactBytes: 1000 },
};

/** Some output. */
const compiled = json("Y", {
  exit_status: 0,
  exit_signal: null,
  timed_out: false,
  stdout: "",
  stderr: "",
  wall_ms: 1,
});
export const out = encodeFrame("O", Buffer.from("partial"));

/** An exit that violates the protocol. */
export const exitWith = (changes: object): Buffer => json("X", { ...exitedWell, ...changes });
const summaryWith = (skipped: unknown): Buffer => json("Z", { result_problem: null, skipped });
const skip = { reason: "too_deep", count: 1, names: ["a"] };

/** Frames that a supervisor never sends after it is ready, if it keeps to the protocol. */
export const lies: [what: string, frames: Buffer[]][] = [
  ["output before the start", [out]],
  ["an exit before the start", [exit]],
  ["a second start", [started, started]],
  ["ready twice", [started, ready]],
  ["the end of a compiler that nobody asked for", [started, compiled]],
  ["an item that nobody asked for", [started, encodeFrame("H", Buffer.from("\0{}"))]],
  ["a call that nobody asked for", [started, encodeFrame("Q", Buffer.from("\0{}"))]],
  ["a frame of unknown type", [started, encodeFrame("?")]],
  ["a frame that only the agent sends", [started, encodeFrame("G")]],
  ["a frame with the largest length", [started, Buffer.from([0x4f, 0xff, 0xff, 0xff, 0xff])]],
  [
    "a frame that is one byte too long",
    [started, encodeFrame("O", Buffer.alloc(maxPayloadBytes + 1))],
  ],
  ["output without bytes", [started, encodeFrame("O")]],
  ["more output than the cap", [started, encodeFrame("O", Buffer.alloc(5000))]],
  ["output after the exit", [started, exit, out]],
  ["an exit that is not JSON", [started, encodeFrame("X", Buffer.from("{"))]],
  ["an exit that is not an object", [started, json("X", [exitedWell])]],
  ["an exit that is nested deep", [started, encodeFrame("X", Buffer.from("[".repeat(200_000)))]],
  ["an exit of another shape", [started, exitWith({ ending: "succeeded" })]],
  ["an exit with a status below zero", [started, exitWith({ exit_status: -1 })]],
  ["an exit with a status that no process has", [started, exitWith({ exit_status: 256 })]],
  ["an exit with a broken status", [started, exitWith({ exit_status: 0.5 })]],
  [
    "an exit with a signal that no kernel has",
    [started, exitWith({ exit_status: null, exit_signal: 65 })],
  ],
  ["an exit with status and signal", [started, exitWith({ exit_signal: 9 })]],
  ["an exit with neither", [started, exitWith({ exit_status: null })]],
  ["an exit with a negative duration", [started, exitWith({ wall_ms: -1 })]],
  ["an exit with an impossible duration", [started, exitWith({ cpu_ms: 1e300 })]],
  ["an exit by a cancel that nobody requested", [started, exitWith({ ending: "cancelled" })]],
  ["a second exit", [started, exit, exit]],
  ["a file before the exit", [started, fileHead("x", 1)]],
  ["data without a file", [started, exit, data("x")]],
  ["data after a file's end", [started, exit, fileHead("x", 1), data("x"), data("x")]],
  ["more data than announced", [started, exit, fileHead("x", 1), data("xy")]],
  ["data without bytes", [started, exit, fileHead("x", 1), encodeFrame("D")]],
  ["a file inside another", [started, exit, fileHead("x", 1), fileHead("y", 1)]],
  ["the end inside a file", [started, exit, fileHead("x", 1), summary]],
  ["more bytes than the cap", [started, exit, fileHead("x", 1001)]],
  ["more bytes than a number can hold", [started, exit, fileHead("x", 2 ** 60)]],
  ["a negative number of bytes", [started, exit, fileHead("x", -1)]],
  ["a result over its cap", [started, exit, fileHead("result.json", 11_000_000, true)]],
  ["a name that leaves the folder", [started, exit, fileHead("../x", 1)]],
  ["an absolute name", [started, exit, fileHead("/etc/passwd", 1)]],
  ["a name that breaks headers", [started, exit, fileHead("a\r\nb", 1)]],
  ["a name with NUL", [started, exit, fileHead("a\0b", 1)]],
  ["a name that is reserved", [started, exit, fileHead("_code.py", 1)]],
  ["no name", [started, exit, fileHead("", 1)]],
  ["a name of a megabyte", [started, exit, fileHead("x".repeat(200_000), 1)]],
  [
    "skipped names that harm a terminal",
    [started, exit, summaryWith([{ ...skip, names: ["\u001b[2J"] }])],
  ],
  [
    "a skip for an unknown reason",
    [started, exit, summaryWith([{ ...skip, reason: "__proto__" }])],
  ],
  ["as many skips as fit", [started, exit, summaryWith(Array.from({ length: 2000 }, () => skip))]],
];
