import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdir, open } from "node:fs/promises";
import { constants } from "node:os";
import { join } from "node:path";
import { finished } from "node:stream/promises";
import { checkJson, JsonError, parseJson, parsePlainJson, withoutMark } from "../../shared/json.ts";
import { isArtifactName as isPlainName } from "../../shared/names.ts";
import { partBytes } from "../../shared/process/parts.node.ts";
import { limits } from "../../shared/wire/limits.ts";
import {
  answerFrames,
  Call,
  Compiled,
  Exit,
  FileHead,
  type Frame,
  FrameError,
  Item,
  OutputSummary,
  parseMessage,
} from "./frames.ts";
import type { CallItem, DisplayItem, RunOptions, SandboxJob, StreamName } from "./job.ts";
import type { Ending, ResultFile, RunReport, SpooledArtifact } from "./verdict.ts";

const invalidCall = "The call is not valid: its arguments may be nested too deep.";

/** Room for the line that replaces the omitted part of a stream. */
const markerBytes = 100;

/**
 * Turns the frames of one run into its report, and checks them against the protocol and the caps. `send` writes frames
 * to the supervisor.
 */
export function startRecorder(
  job: SandboxJob,
  options: RunOptions,
  send: (frames: Iterable<Buffer>) => void,
) {
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

  function progress() {
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
    /** @throws FrameError on a frame that does not belong; file system errors as they are. */
    async take({ type, payload }: Frame): Promise<void> {
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
    /** Drops an incomplete file; safe to call twice. */
    close: () => spool.abandon(),
    /**
     * What is known so far. `ending` applies if the supervisor reported none; `lostReason` says why
     * no more frames will come.
     */
    async report(ending: Ending, lostReason: string | null): Promise<RunReport> {
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

type Lengths = Readonly<Record<StreamName, number>>;

/** Lower than the limit of JSON, because the call is nested in the agent's post. */
const callDepthMax = limits.jsonDepthMax - 8;

/** What the code shows and calls in one run, from the pieces in which it comes. All of it is numbered together. */
export function createItems(names: readonly string[] = []) {
  const shown: DisplayItem[] = [];
  const displays = assemble(limits.resultItemMaxBytes, limits.resultItemsMax);
  const calls = assemble(limits.toolCallMaxBytes, limits.toolCallsMax, limits.toolCallsMaxBytes);
  let count = 0;
  let hasInvalid = false;

  const place = ({ stdout, stderr }: Lengths) => ({
    number: ++count,
    stdoutAt: stdout,
    stderrAt: stderr,
  });

  return {
    shown,
    /** Whether an item was none: the code made it, not cells.py. */
    get hasInvalid() {
      return hasInvalid;
    },
    /** Returns the item that a piece completes. @throws FrameError on more than PID 1 relays. */
    takeItem(frame: Buffer, now: Lengths): DisplayItem | undefined {
      const whole = displays(frame, now);
      if (whole === undefined) return undefined;
      const told = parseItem(whole.text);
      if (told === undefined) {
        hasInvalid = true;
        return undefined;
      }
      const item = { ...place(whole.at), ...told };
      shown.push(item);
      return item;
    },
    /**
     * The same for a tool call, with the id that its answer needs (0 if it has none). Without a call if its arguments
     * are nested too deep, or the code made it, not tools.py.
     */
    takeCall(frame: Buffer, now: Lengths): { id: number; call?: CallItem } | undefined {
      const whole = calls(frame, now);
      if (whole === undefined) return undefined;
      const told = parseCall(whole.text);
      if (told === undefined || !names.includes(told.name)) return { id: idOf(whole.text) };
      const { id, ...call } = told;
      return { id, call: { ...place(whole.at), ...call } };
    },
  };
}

/** Joins pieces. The first byte of each is 0 if it is the last one, else 1. `at` is where the first one came. */
function assemble(bytesOfOne: number, most: number, bytesOfAll = Infinity) {
  let pieces: Buffer[] = [];
  let bytes = 0;
  let all = 0;
  let begun = 0;
  let at: Lengths = { stdout: 0, stderr: 0 };
  return (frame: Buffer, now: Lengths): { text: string; at: Lengths } | undefined => {
    if (pieces.length === 0) {
      at = { ...now };
      bytes = 0;
      begun++;
    }
    // Copied: it is a view of the larger piece that the stream brought.
    pieces.push(Buffer.from(frame.subarray(1)));
    bytes += frame.length - 1;
    all += frame.length - 1;
    if (frame.length < 2 || bytes > bytesOfOne || begun > most || all > bytesOfAll)
      throw new FrameError("more items than PID 1 relays");
    if (frame[0] !== 0) return undefined;
    const text = Buffer.concat(pieces).toString("utf8");
    pieces = [];
    return { text, at };
  };
}

/** More than any valid item has. */
const itemMaxValues = 100;

function parseItem(text: string): Pick<DisplayItem, "main" | "data"> | undefined {
  try {
    const { main, data } = Item.parse(parsePlainJson(text, { depth: 2, values: itemMaxValues }));
    const forms = Object.entries(data).map(([type, form]) => [type, form.toWellFormed()]);
    return { main, data: Object.fromEntries(forms) as typeof data };
  } catch {
    return undefined;
  }
}

function parseCall(text: string): Call | undefined {
  try {
    return Call.parse(parseJson(text, { depth: callDepthMax, values: limits.requestMaxValues }));
  } catch {
    return undefined;
  }
}

/** As tools.py writes it, also where the rest cannot be parsed. */
const idOf = (text: string): number => Number(/^\{"id":(\d{1,4}),/.exec(text)?.[1] ?? 0);

/** Receives the bytes of one file; `keep` or `discard` ends it. */
interface Sink {
  write(bytes: Buffer): Promise<void>;
  keep(): Promise<void>;
  discard(): Promise<void>;
}

/**
 * Writes the files of one /output to numbered files of the agent as they arrive. With `mayDrop`, a piece without bytes
 * drops the file that has begun.
 */
function openSpool(folder: string, maxBytes: number, mayDrop = false) {
  const artifacts: SpooledArtifact[] = [];
  const names = new Set<string>();
  let hasResult = false;
  let result: ResultFile = { kind: "absent" };
  let bytesLeft = maxBytes;
  let begun = 0;
  let current: { sink: Sink; missingBytes: number } | null = null;

  async function artifactSink(name: string): Promise<Sink> {
    const path = join(folder, String(begun++));
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const file = await open(path, "wx", 0o600);
    // Pieces that come during a write are written together.
    const disk = file.createWriteStream({ highWaterMark: partBytes }).on("error", () => {});
    const hash = createHash("sha256");
    let sizeBytes = 0;
    return {
      async write(bytes) {
        hash.update(bytes);
        sizeBytes += bytes.length;
        if (disk.write(bytes)) return;
        if (disk.errored) throw disk.errored;
        await once(disk, "drain");
      },
      async keep() {
        await finished(disk.end());
        artifacts.push({ name, sizeBytes, sha256: hash.digest("hex"), path });
      },
      discard: () => finished(disk.destroy()).catch(() => {}),
    };
  }

  function resultSink(): Sink {
    const chunks: Buffer[] = [];
    return {
      async write(bytes) {
        chunks.push(bytes);
      },
      async keep() {
        const bytes = Buffer.concat(chunks);
        result = await readResultFile(bytes);
        if (result.kind === "object") return;
        names.add("result.json");
        const sink = await artifactSink("result.json");
        await sink.write(bytes);
        await sink.keep();
      },
      async discard() {},
    };
  }

  function check({ name, size, result }: FileHead): void {
    if (current !== null) throw new FrameError("a file inside another");
    if (result) {
      if (hasResult) throw new FrameError("a second result.json");
      if (size > limits.resultJsonMaxBytes) throw new FrameError("result.json over its cap");
      hasResult = true;
      return;
    }
    if (names.has(name)) throw new FrameError(`a second ${JSON.stringify(name)}`);
    names.add(name);
    if (!isArtifactName(name)) throw new FrameError(`an artifact named ${JSON.stringify(name)}`);
    bytesLeft -= size;
    // One more than the limit: an invalid result.json is kept in addition to the artifacts.
    if (bytesLeft < 0 || artifacts.length > limits.artifactCountMax) {
      throw new FrameError("artifacts over their cap");
    }
  }

  async function advance(byBytes: number): Promise<void> {
    if (current === null) return;
    current.missingBytes -= byBytes;
    if (current.missingBytes > 0) return;
    const { sink } = current;
    current = null;
    await sink.keep();
  }

  async function drop(): Promise<void> {
    const unfinished = current;
    current = null;
    await unfinished?.sink.discard();
  }

  return {
    artifacts,
    get result() {
      return result;
    },
    /** @throws FrameError on a head out of turn, over a cap or with an unsafe name. */
    async begin(head: FileHead): Promise<void> {
      check(head);
      const sink = head.result ? resultSink() : await artifactSink(head.name);
      current = { sink, missingBytes: head.size };
      await advance(0);
    },
    /** @throws FrameError on data that no head announced; file system errors as they are. */
    async write(bytes: Buffer): Promise<void> {
      if (mayDrop && bytes.length === 0) return drop();
      // Empty pieces could go on forever.
      if (current === null || bytes.length === 0 || bytes.length > current.missingBytes) {
        throw new FrameError("file data that was not announced");
      }
      await current.sink.write(bytes);
      await advance(bytes.length);
    },
    /** @throws FrameError if a file is not complete. */
    finish({ result_problem }: OutputSummary): void {
      if (current !== null) throw new FrameError("a file that is cut short");
      if (result_problem !== null) {
        result = { kind: "invalid", problem: resultProblems[result_problem] ?? result_problem };
      }
    },
    /** Drops an incomplete file. */
    abandon: drop,
  };
}

const resultProblems: Partial<Record<string, string>> = {
  not_a_regular_file: "it is not a regular file",
  hard_link: "it has more than one hard link",
  too_many_bytes: `it is larger than ${limits.resultJsonMaxBytes} bytes`,
  unreadable: "it cannot be read",
};

/** Checks the bytes of /output/result.json; Python writes NaN and Infinity, which JSON lacks. */
export async function readResultFile(bytes: Uint8Array): Promise<ResultFile> {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return invalidResult("it is not UTF-8");
  }
  const { jsonDepthMax: depth, resultJsonMaxValues: values } = limits;
  try {
    const json = withoutMark(text);
    const first = await checkJson(json, { depth, values, isFinite: true });
    return first === "{"
      ? { kind: "object", text }
      : invalidResult(`it holds ${jsonKinds[first] ?? "a number"}, not an object`);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    if (error.isMalformed) return invalidResult(`it is not JSON: ${error.message}`);
    return invalidResult(`${error.message}: write other data to another file of /output`);
  }
}

function invalidResult(problem: string): ResultFile {
  return { kind: "invalid", problem };
}

/** By the first character of a text. */
const jsonKinds: Readonly<Record<string, string>> = {
  "[": "an array",
  '"': "a string",
  n: "null",
  t: "a boolean",
  f: "a boolean",
};

/** Names that the API uses for the execution's code and input. */
const reservedNames = new Set(["_code.py", "_input.json"]);

/** Whether a file of /output may have a name. */
export function isArtifactName(name: string): boolean {
  return (
    !reservedNames.has(name) &&
    isPlainName(name) &&
    Buffer.byteLength(name) <= limits.artifactNameMaxBytes
  );
}

/** Smaller pieces are copied together: each stored piece has an overhead of 200 bytes. */
const smallBytes = 4096;
const blockBytes = 64 * 1024;

/** Bytes that come in pieces of any size. */
export function createByteLog() {
  const pieces: Uint8Array[] = [];
  /** Buffer for small pieces; its filled part becomes a piece when another one follows. */
  let block = Buffer.alloc(0);
  let filled = 0;
  let length = 0;

  function closeBlock(): void {
    if (filled > 0) pieces.push(block.subarray(0, filled));
    block = block.subarray(filled);
    filled = 0;
  }

  return {
    get length() {
      return length;
    },
    add(bytes: Uint8Array): void {
      length += bytes.length;
      if (bytes.length >= smallBytes) {
        closeBlock();
        pieces.push(bytes);
        return;
      }
      if (filled + bytes.length > block.length) {
        closeBlock();
        block = Buffer.allocUnsafeSlow(blockBytes);
      }
      block.set(bytes, filled);
      filled += bytes.length;
    },
    all() {
      return Buffer.concat([...pieces, block.subarray(0, filled)], length);
    },
  };
}
