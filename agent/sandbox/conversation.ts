import { once } from "node:events";
import { createReadStream } from "node:fs";
import type { Writable } from "node:stream";
import { freed } from "../../shared/process/parts.node.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { Bytecode } from "../python/program.ts";
import {
  dataBytes,
  encodeFrame,
  type Frame,
  frameDecoder,
  FrameError,
  type Link,
  maxPayloadBytes,
  NotReady,
  parseMessage,
  Ready,
} from "./frames.ts";
import { installPackages, tellRequirements } from "./install-packages.ts";
import type {
  InputFile,
  PackageRequest,
  Program,
  RunOptions,
  SandboxCall,
  SandboxJob,
} from "./job.ts";
import { startRecorder } from "./output.ts";
import { EngineError } from "./sandbox.ts";
import type { RunReport } from "./verdict.ts";

/** Milliseconds between SIGINT and SIGKILL in a session, as in python/session.py; more while it compiles long code. */
const interruptMs = 2000;
const compileMs = ({ call, code }: SandboxJob): number =>
  call && Buffer.byteLength(code) > 64 * 1024 ? 60_000 : 0;

/** Milliseconds until a silent supervisor counts as lost. */
export interface Patience {
  /** After the code's time is over, when the supervisor should have killed it. */
  readonly overtimeMs: number;
  /** Between two pieces of /output. */
  readonly silenceMs: number;
  /** For all of /output. */
  readonly collectMs: number;
}

/** The overtime is longer than the 5 s that the supervisor may wait for processes to die. */
const defaultPatience = { overtimeMs: 15_000, silenceMs: 30_000, collectMs: 300_000 };

/**
 * Waits until the supervisor is ready for its job. Sends the job before, if it is `ahead`: the supervisor runs it as
 * soon as it is ready, and nothing else can be given to it.
 *
 * @throws EngineError if it ends or reports a failure; the signal's reason on abort.
 */
export async function openConversation(
  link: Link,
  signal: AbortSignal,
  patience: Patience = defaultPatience,
  ahead: SandboxJob | null = null,
) {
  signal.throwIfAborted();
  if (ahead) sendJob(link.input, ahead);
  const frames = readFrames(link);
  const giveUp = (): void => link.destroy();
  signal.addEventListener("abort", giveUp);
  try {
    const { ready, bytecode } = await readReady(frames);
    const died = new AbortController();
    const nextFrame = (): ReturnType<Frames["next"]> => {
      const next = frames.next();
      next.catch((error: unknown) => died.abort(error));
      return next;
    };
    let upcoming = nextFrame();
    const takeFrame = async (): Promise<Frame> => {
      const { value } = await upcoming;
      upcoming = nextFrame();
      return value;
    };
    return {
      pythonVersion: ready.python_version,
      preloadErrors: ready.preload_errors,
      /** The bytecode of its program, if it was sent as text. */
      bytecode,
      /** Aborts when the supervisor ends while it waits for a job. */
      died: died.signal,
      /**
       * Installs packages before the job.
       *
       * @throws InstallError; EngineError where the container ends; the signal's reason on abort.
       */
      install: (packages: PackageRequest, limit: AbortSignal) =>
        install(link, takeFrame, packages, limit),
      /** As `Sandbox.giveFiles`. */
      giveFiles: (files: readonly InputFile[], limit: AbortSignal) =>
        giveFiles(link, files, died.signal, limit),
      /** Tells the supervisor the lines of /input/_requirements.txt, where the packages are there already. */
      tellRequirements: (requirements: readonly string[]) => tellRequirements(link, requirements),
      /** As `Sandbox.beginSession`. */
      beginSession: (env: Readonly<Record<string, string>>): void =>
        void link.input.write(encodeFrame("N", Buffer.from(assignments(env).join("\0")))),
      /** A job that was sent ahead is not sent again. */
      async run(job: SandboxJob, options: RunOptions): Promise<RunReport> {
        if (ahead && job !== ahead) throw new Error("another job was sent ahead");
        if (!job.call) {
          if (!ahead && !options.signal.aborted) sendJob(link.input, job);
          return runJob(link, frames, upcoming, job, options, patience);
        }
        const isSent = await sendCall(link, job, job.call, died.signal, options.signal);
        const report = await runJob(link, frames, upcoming, job, options, patience).catch(
          (error: unknown) => {
            died.abort(error);
            throw error;
          },
        );
        if (report.lostReason !== null) died.abort(new EngineError("other", report.lostReason));
        else if (isSent) upcoming = nextFrame();
        return report;
      },
    };
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  } finally {
    signal.removeEventListener("abort", giveUp);
  }
}

type Frames = AsyncGenerator<Frame, never>;

/** Throws FrameError, and no other error, when there are no more frames. */
async function* readFrames(link: Link): Frames {
  const decode = frameDecoder("D");
  try {
    for await (const chunk of link.output) yield* decode(chunk);
  } catch (cause) {
    throw cause instanceof FrameError ? cause : new FrameError("the stream broke", { cause });
  }
  throw new FrameError(`the supervisor ended: ${link.diagnostics()}`);
}

async function readReady(frames: Frames): Promise<{ ready: Ready; bytecode: Bytecode | null }> {
  try {
    let { type, payload } = (await frames.next()).value;
    let bytecode: Bytecode | null = null;
    if (type === "B") {
      const { value: later } = await frames.next();
      bytecode = { program: payload, later: later.payload };
      ({ type, payload } = (await frames.next()).value);
    }
    if (type === "R") return { ready: parseMessage(Ready, payload), bytecode };
    const { message, output } = parseMessage(NotReady, payload);
    throw new EngineError("command_not_found", `${message}: ${output}`.trim());
  } catch (error) {
    if (!(error instanceof FrameError)) throw error;
    throw new EngineError("other", `a container did not get ready: ${error.message}`, {
      cause: error,
    });
  }
}

async function install(
  link: Link,
  nextFrame: () => Promise<Frame>,
  packages: PackageRequest,
  signal: AbortSignal,
): Promise<void> {
  signal.throwIfAborted();
  const giveUp = (): void => link.destroy();
  signal.addEventListener("abort", giveUp);
  try {
    await installPackages(link, nextFrame, packages);
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof FrameError)) throw error;
    link.destroy();
    const message = `the container ended while packages were installed: ${error.message}`;
    throw new EngineError("other", message, { cause: error });
  } finally {
    signal.removeEventListener("abort", giveUp);
  }
}

async function runJob(
  link: Link,
  frames: Frames,
  upcoming: ReturnType<Frames["next"]>,
  job: SandboxJob,
  options: RunOptions,
  { overtimeMs, silenceMs, collectMs }: Patience,
): Promise<RunReport> {
  const recorder = startRecorder(job, options, (frames) => {
    for (const frame of frames) link.input.write(frame);
  });
  if (options.signal.aborted) return recorder.report("cancelled", null);

  let overdue = false;
  let collectedByMs: number | null = null;
  let watchdog: NodeJS.Timeout | undefined;
  function expectFrameWithin(ms: number): void {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => {
      overdue = true;
      link.destroy();
    }, ms);
  }
  function cancel(): void {
    link.input.write(encodeFrame("K"));
    if (recorder.progress !== "exited") expectFrameWithin(compileMs(job) + graceMs + overtimeMs);
  }

  const compilerMs = job.program?.compile.length ? job.program.compileTimeoutMs + graceMs : 0;
  const toolsMs = job.tools?.timeoutMs ?? 0;
  // A call may start an interpreter, in as much time as its code has.
  const callMs = job.call ? job.timeoutMs + 2 * interruptMs + compileMs(job) : 0;
  expectFrameWithin(compilerMs + callMs + job.timeoutMs + toolsMs + graceMs + overtimeMs);
  options.signal.addEventListener("abort", cancel);
  try {
    await recorder.take((await upcoming).value);
    while (recorder.progress !== "complete") {
      await recorder.take((await frames.next()).value);
      if (recorder.progress === "exited") {
        collectedByMs ??= performance.now() + collectMs;
        expectFrameWithin(Math.max(0, Math.min(silenceMs, collectedByMs - performance.now())));
      }
    }
    return await recorder.report("exited", null);
  } catch (error) {
    link.destroy();
    if (!(error instanceof FrameError)) throw error;
    if (options.signal.aborted) return await recorder.report("cancelled", error.message);
    if (recorder.progress === "sent") {
      const message = `the container ended before the code began: ${error.message}`;
      throw new EngineError("other", message, { cause: error });
    }
    const reason = overdue ? "the supervisor went silent" : error.message;
    return await recorder.report(overdue ? "timeout" : "lost", reason);
  } finally {
    clearTimeout(watchdog);
    options.signal.removeEventListener("abort", cancel);
    await recorder.close();
  }
}

/** Milliseconds between SIGTERM and SIGKILL. */
const graceMs = 500;

function sendJob(input: Writable, job: SandboxJob): void {
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

/**
 * Sends a call: its words and files, then its job, unless it was cancelled meanwhile. Without files, all of it is one write.
 *
 * @param died aborts when the supervisor has ended.
 * @returns whether the job was sent.
 * @throws EngineError if the supervisor ends; the disk's errors.
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
function callWords(call: SandboxCall): Buffer {
  const words = [
    `n${call.number}`,
    `c${call.context}`,
    ...call.contexts.map((other) => `l${other}`),
    ...(call.restart ? ["r"] : []),
    ...assignments(call.env).map((assignment) => `e${assignment}`),
    ...call.fetch.map((path) => `f${path}`),
    ...(call.onlyFetches ? ["o"] : []),
  ];
  return Buffer.from(words.join("\0"));
}

const assignments = (env: Readonly<Record<string, string>>): string[] =>
  Object.entries(env).map(([name, value]) => `${name}=${value}`);

/**
 * Sends files to the supervisor, which puts them under /input, as fast as it takes them.
 *
 * @param died aborts when it has ended.
 * @throws EngineError if it ends; the disk's errors; the signal's reason.
 */
async function giveFiles(
  link: Link,
  files: readonly InputFile[],
  died: AbortSignal,
  signal: AbortSignal,
): Promise<void> {
  const stop = AbortSignal.any([signal, died]);
  const { input } = link;
  async function send(frame: Buffer): Promise<void> {
    stop.throwIfAborted();
    if (!input.write(frame)) await once(input, "drain", { signal: stop });
  }
  try {
    for (const { name, path } of files) {
      await send(encodeFrame("M", Buffer.from(name)));
      for await (const piece of freed(createReadStream(path, { highWaterMark: maxPayloadBytes })))
        await send(encodeFrame("U", piece as Buffer));
    }
  } catch (error) {
    link.destroy();
    signal.throwIfAborted();
    if (!died.aborted) throw error;
    const message = "the container ended while it was given its files";
    throw new EngineError("other", message, { cause: died.reason });
  }
}
