import type { Writable } from "node:stream";
import { limits } from "../../../shared/wire/limits.ts";
import {
  dataBytes,
  encodeFrame,
  type Frame,
  frameDecoder,
  FrameError,
} from "../protocol/frames.ts";
import type { Link } from "../protocol/link.ts";
import { NotReady, parseMessage, Ready } from "../protocol/messages.ts";
import { installPackages, tellRequirements } from "./install-packages.ts";
import type { PackageRequest } from "../package-request.ts";
import { giveFiles } from "./give-files.ts";
import { startRecorder } from "./recorder.ts";
import type { Bytecode } from "../../python/program.ts";
import { EngineError } from "../errors.ts";
import type { InputFile, Program, RunOptions, SandboxJob } from "../job.ts";
import type { RunReport } from "../report.ts";

export interface Conversation {
  readonly pythonVersion: string;
  readonly preloadErrors: Readonly<Record<string, string>>;
  /** The bytecode of its program, if it was sent as text. */
  readonly bytecode: Bytecode | null;
  /** Aborts when the supervisor ends while it waits for a job. */
  readonly died: AbortSignal;
  /**
   * Installs packages before the job.
   *
   * @throws InstallError; EngineError where the container ends; the signal's reason on abort.
   */
  install(packages: PackageRequest, signal: AbortSignal): Promise<void>;
  /** As `Sandbox.giveFiles`. */
  giveFiles(files: readonly InputFile[], signal: AbortSignal): Promise<void>;
  /** Tells it the lines of /input/_requirements.txt, where the packages are there already. */
  readonly tellRequirements: (requirements: readonly string[]) => void;
  /** A job that was sent ahead is not sent again. */
  run(job: SandboxJob, options: RunOptions): Promise<RunReport>;
}

/** Milliseconds between SIGTERM and SIGKILL. */
const graceMs = 500;

/** Milliseconds until a silent supervisor counts as lost. */
export interface Patience {
  /** After the code's time is over, when the supervisor should have killed it. */
  readonly overtimeMs: number;
  /** Between two pieces of /output. */
  readonly silenceMs: number;
  /** For all of /output. */
  readonly collectMs: number;
}

/** An overtime of more than the 5 s that the supervisor may wait for processes to die. */
const defaultPatience: Patience = {
  overtimeMs: 15_000,
  silenceMs: 30_000,
  collectMs: 300_000,
};

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
): Promise<Conversation> {
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
    return {
      pythonVersion: ready.python_version,
      preloadErrors: ready.preload_errors,
      bytecode,
      died: died.signal,
      install: async (packages, limit) => {
        await install(
          link,
          async () => {
            const { value } = await upcoming;
            upcoming = nextFrame();
            return value;
          },
          packages,
          limit,
        );
      },
      giveFiles: (files, limit) => giveFiles(link, files, died.signal, limit),
      tellRequirements: (requirements) => tellRequirements(link, requirements),
      async run(job, options) {
        if (ahead && job !== ahead) throw new Error("another job was sent ahead");
        if (!ahead && !options.signal.aborted) sendJob(link.input, job);
        return runJob(link, frames, upcoming, job, options, patience);
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
  const decode = frameDecoder();
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
    const bytecode = type === "B" ? payload : null;
    if (bytecode !== null) ({ type, payload } = (await frames.next()).value);
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
    if (recorder.progress !== "exited") expectFrameWithin(graceMs + overtimeMs);
  }

  const compileMs = job.program?.compile.length ? job.program.compileTimeoutMs + graceMs : 0;
  const toolsMs = job.tools?.timeoutMs ?? 0;
  expectFrameWithin(compileMs + job.timeoutMs + toolsMs + graceMs + overtimeMs);
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

/** As python/common/link.py reads them. */
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
