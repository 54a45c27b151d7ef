import type { Writable } from "node:stream";
import { limits } from "../../../shared/wire/limits.ts";
import type { Program, SandboxCall, SandboxJob } from "../job.ts";
import { dataBytes, encodeFrame } from "../protocol/frames.ts";
import type { Link } from "../protocol/link.ts";
import { giveFiles } from "./give-files.ts";

/** Milliseconds between SIGTERM and SIGKILL. */
export const graceMs = 500;

export function sendJob(input: Writable, job: SandboxJob): void {
  const orders = {
    timeout_ms: job.timeoutMs,
    grace_ms: graceMs,
    max_sockets: job.maxSockets ?? 0,
    stream_bytes: job.caps.streamBytes,
    artifact_bytes: job.caps.artifactBytes,
    artifact_count: limits.artifactCountMax,
    result_bytes: limits.resultJsonMaxBytes,
    ...(job.results && { results: 1 }),
    ...(job.tools && { tool_timeout_ms: job.tools.timeoutMs }),
  };
  input.cork();
  input.write(encodeFrame("J", numbers(orders)));
  if (job.program) input.write(encodeFrame("W", wordsOf(job.program)));
  for (const frame of dataFrames("C", job.code)) input.write(frame);
  for (const frame of dataFrames("I", job.inputJson)) input.write(frame);
  for (const frame of dataFrames("T", job.stdin ?? "")) input.write(frame);
  const args = (job.args ?? []).map((arg) => `${arg}\0`).join("");
  for (const frame of dataFrames("V", args)) input.write(frame);
  if (job.tools) {
    const functions = JSON.stringify(job.tools.functions);
    for (const frame of dataFrames("F", functions)) input.write(frame);
  }
  input.write(encodeFrame("G"));
  input.uncork();
}

function wordsOf({ file, compile, compileTimeoutMs, run }: Program): Buffer {
  return Buffer.from([file, compileTimeoutMs, compile.length, ...compile, ...run].join("\0"));
}

/** As python/link.py reads them. */
function numbers(byName: Record<string, number>): Buffer {
  const words = Object.entries(byName).map(([name, number]) => `${name}=${Math.ceil(number)}`);
  return Buffer.from(words.join(" "));
}

function* dataFrames(type: string, data: string | Uint8Array): Generator<Buffer> {
  const bytes = Buffer.from(data);
  for (let at = 0; at < bytes.length; at += dataBytes) {
    yield encodeFrame(type, bytes.subarray(at, at + dataBytes));
  }
}

export function sendSession(input: Writable, env: Readonly<Record<string, string>>): void {
  input.write(encodeFrame("N", Buffer.from(assignments(env).join("\0"))));
}

/**
 * Sends a call, its job only if it is still wanted once its files are there. Without files, all of it is one write.
 *
 * @param died aborts when the supervisor has ended.
 * @returns whether its job was sent.
 * @throws EngineError if it ends; the disk's errors.
 */
export async function sendCall(
  link: Link,
  job: SandboxJob,
  call: SandboxCall,
  died: AbortSignal,
  cancel: AbortSignal,
): Promise<boolean> {
  died.throwIfAborted();
  const { input } = link;
  input.cork();
  input.write(encodeFrame("N", callWords(call)));
  if (call.files.length > 0) {
    input.uncork();
    const files = call.files.map((file) =>
      file.to === "work" ? { ...file, name: `/output/${file.name}` } : file,
    );
    await giveFiles(link, files, died, died);
    input.cork();
  }
  const isWanted = !cancel.aborted;
  if (isWanted) sendJob(input, job);
  input.uncork();
  return isWanted;
}

/** As python/session.py reads them. */
function callWords({
  number,
  context,
  contexts,
  restart,
  env,
  fetch,
  onlyFetches,
}: SandboxCall): Buffer {
  const words = [
    `n${number}`,
    `c${context}`,
    ...contexts.map((other) => `l${other}`),
    ...(restart ? ["r"] : []),
    ...assignments(env).map((assignment) => `e${assignment}`),
    ...fetch.map((path) => `f${path}`),
    ...(onlyFetches ? ["o"] : []),
  ];
  return Buffer.from(words.join("\0"));
}

const assignments = (env: Readonly<Record<string, string>>): string[] =>
  Object.entries(env).map(([name, value]) => `${name}=${value}`);
