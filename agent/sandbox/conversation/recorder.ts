import { constants } from "node:os";
import { limits } from "../../../shared/wire/limits.ts";
import { createByteLog } from "../output/byte-log.ts";
import { answerFrames } from "../protocol/answer.ts";
import { type Frame, FrameError } from "../protocol/frames.ts";
import { Compiled, Exit, FileHead, OutputSummary, parseMessage } from "../protocol/messages.ts";
import { createItems } from "../output/items.ts";
import { openSpool } from "../output/spool.ts";
import type { Ending, RunReport } from "../report.ts";
import type { RunOptions, SandboxJob, StreamName } from "../job.ts";

const invalidCall = "The call is not valid: its arguments may be nested too deep.";

/** Room for the line that replaces the omitted part of a stream. */
const markerBytes = 100;

/**
 * Turns the frames of one run into its report, and checks them against the protocol and the caps.
 */
export interface Recorder {
  readonly progress: "sent" | "started" | "exited" | "complete";
  /** @throws FrameError on a frame that does not belong; file system errors as they are. */
  take(frame: Frame): Promise<void>;
  /**
   * What is known so far. `ending` applies if the supervisor reported none; `lostReason` says why
   * no more frames will come.
   */
  report(ending: Ending, lostReason: string | null): Promise<RunReport>;
  /** Drops an incomplete file; safe to call twice. */
  close(): Promise<void>;
}

/** `send` writes frames to the supervisor. */
export function startRecorder(
  job: SandboxJob,
  options: RunOptions,
  send: (frames: Iterable<Buffer>) => void,
): Recorder {
  const streams = { stdout: createByteLog(), stderr: createByteLog() };
  const items = createItems(job.tools?.functions.map(({ name }) => name));
  const calls = new Map<number, string>();
  const spool = openSpool(options.spoolDir, job.caps.artifactBytes, job.call !== undefined);
  let startedAtMs: number | null = null;
  let compiled: Compiled | null = null;
  let exit: Exit | null = null;
  let summary: OutputSummary | null = null;

  function takeOutput(name: StreamName, bytes: Buffer): void {
    if (bytes.length === 0) throw new FrameError("output without bytes");
    if (streams[name].length + bytes.length > job.caps.streamBytes + markerBytes) {
      throw new FrameError(`${name} over its cap`);
    }
    streams[name].add(bytes);
    options.onOutput?.(name, bytes);
  }

  function checked(told: Exit): Exit {
    if (told.ending === "cancelled" && !options.signal.aborted) {
      throw new FrameError("a cancel that nobody asked for");
    }
    return told;
  }

  function progress(): Recorder["progress"] {
    if (summary !== null) return "complete";
    if (exit !== null) return "exited";
    return startedAtMs === null ? "sent" : "started";
  }

  /** Frame types by the progress in which they may come. */
  const expected = {
    sent: "S",
    started: `YOEX${job.results ? "H" : ""}${job.tools ? "Q" : ""}`,
    exited: "ADZ",
    complete: "",
  };

  const lengths = () => ({ stdout: streams.stdout.length, stderr: streams.stderr.length });

  function takeItem(piece: Buffer): void {
    const item = items.takeItem(piece, lengths());
    if (item) options.onItem?.(item);
  }

  function takeCall(piece: Buffer): void {
    const told = items.takeCall(piece, lengths());
    if (told === undefined) return;
    const { id, call } = told;
    // PID 1 counts it, and the code may wait for it: its time must end.
    if (call === undefined) return send(answerFrames(id, { error: invalidCall }));
    calls.set(call.number, call.name);
    if (calls.size > limits.toolCallsPendingMax) throw new FrameError("too many calls wait");
    options.onCall?.(call, (given) => {
      if (calls.delete(call.number) && progress() === "started") send(answerFrames(id, given));
    });
  }

  function takeCompiled(told: Compiled): void {
    const isFirst = compiled === null && streams.stdout.length + streams.stderr.length === 0;
    if (!isFirst || !job.program?.compile.length) throw new FrameError("a compiler out of turn");
    compiled = told;
  }

  return {
    get progress() {
      return progress();
    },
    async take({ type, payload }) {
      if (!expected[progress()].includes(type)) throw new FrameError(`a frame ${type} out of turn`);
      switch (type) {
        case "S":
          startedAtMs = performance.now();
          return options.onStarted?.();
        case "Y":
          return takeCompiled(parseMessage(Compiled, payload));
        case "O":
          return takeOutput("stdout", payload);
        case "E":
          return takeOutput("stderr", payload);
        case "H":
          return takeItem(payload);
        case "Q":
          return takeCall(payload);
        case "X":
          exit = checked(parseMessage(Exit, payload));
          return;
        case "A":
          return spool.begin(parseMessage(FileHead, payload));
        case "D":
          return spool.write(payload);
        case "Z":
          summary = parseMessage(OutputSummary, payload);
          return spool.finish(summary);
      }
    },
    close: () => spool.abandon(),
    async report(ending, lostReason) {
      await spool.abandon();
      const seenMs = startedAtMs === null ? 0 : performance.now() - startedAtMs;
      return {
        ending: exit?.ending ?? ending,
        started: startedAtMs !== null,
        compiled: compiled && {
          exitStatus: compiled.exit_status,
          timedOut: compiled.timed_out,
          stdout: compiled.stdout,
          stderr: compiled.stderr,
          wallMs: compiled.wall_ms,
        },
        exitStatus: exit?.exit_status ?? null,
        exitSignal: exit?.exit_signal ? signalName(exit.exit_signal) : null,
        exception: exit?.exception ?? null,
        outOfMemory: exit?.out_of_memory ?? false,
        lostReason,
        stdout: streams.stdout.all(),
        stderr: streams.stderr.all(),
        stdoutTruncated: exit?.truncated[0] ?? false,
        stderrTruncated: exit?.truncated[1] ?? false,
        result: spool.result,
        items: items.shown,
        unansweredCall: [...calls.values()][0] ?? null,
        itemsTruncated: items.hasInvalid || (exit?.results_truncated ?? false),
        artifacts: spool.artifacts,
        skipped: summary?.skipped ?? [],
        executionMs: exit?.wall_ms ?? seenMs,
        usage: exit && {
          cpuTimeMs: exit.cpu_ms,
          maxRssBytes: exit.max_rss_bytes,
          wallTimeMs: exit.wall_ms,
        },
      };
    },
  };
}

/** If a number has several names, the first is the usual one: SIGABRT before SIGIOT. */
const signalNames = new Map<number, string>(
  Object.entries(constants.signals)
    .toReversed()
    .map(([name, number]) => [number, name]),
);

function signalName(number: number): string {
  return signalNames.get(number) ?? `SIG${number}`;
}
