import { PassThrough } from "node:stream";
import { encodeFrame, frameDecoder } from "../protocol/frames.ts";
import type { Link } from "../protocol/link.ts";
import type { SandboxJob } from "../job.ts";

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
