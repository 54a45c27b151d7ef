import { type Duplex, Writable } from "node:stream";
import { z } from "zod";
import { type Engine, linkOf } from "../engine/engine.ts";
import { motherProgram, type MotherSettings } from "../python/program.ts";
import {
  encodeSwitchFrame,
  FrameError,
  type Link,
  parseMessage,
  switchDecoder,
  type SwitchFrame,
} from "../sandbox/frames.ts";
import { EngineError } from "../sandbox/sandbox.ts";
import type { Architecture } from "../sandbox/syscall-numbers.ts";
import { motherProfile, type MotherSpec } from "./profiles.ts";

const Hello = z.object({ machine: z.enum(["x86_64", "aarch64"]) });
type Hello = z.infer<typeof Hello>;
const ZygoteReady = z.object({
  problem: z.string(),
  took_ms: z.record(z.string(), z.number()).default({}),
});
const ZygoteEnd = z.object({ problem: z.string(), output: z.string() });

/**
 * No zygote of this kind can be started: its interpreter ended before it was ready, or what it imports would
 * not work in a fork. Its jobs need containers of their own.
 */
export class NotForkable extends Error {
  override name = "NotForkable";
  /** Whether the next try may succeed: the interpreter may have been killed. */
  readonly mayPass: boolean;

  constructor(message: string, { mayPass = false } = {}) {
    super(message);
    this.mayPass = mayPass;
  }
}

/** What is known of a job that is gone. */
const Gone = z.object({
  /** Why it never started; null if it did. */
  problem: z.string().nullable(),
  /** Processes that the kernel killed because its memory was full. */
  oom_kills: z.number(),
  /** Whether its zygote ended first, which ends it too. */
  zygote_ended: z.boolean(),
});
type Gone = z.infer<typeof Gone>;

/** Everything that decides what a zygote is, before its jobs are known. */
interface ZygoteOrder {
  /** Folder of its image's files. */
  readonly root: string;
  readonly env: Readonly<Record<string, string>>;
  readonly program: string;
  /** Bytes, for what it imports. */
  readonly memory: number;
  readonly pids: number;
  readonly cpus: number;
  /** The filter of its system calls as hexadecimal BPF; empty for none. */
  readonly filter: string;
}

interface JobOrder {
  /** Bytes. */
  readonly memory: number;
  readonly pids: number;
  readonly cpus: number;
  /** Bytes of /dev/shm, and of /tmp and /output each. */
  readonly shm: number;
  readonly writable: number;
  /** Name of its bundle of packages; empty for none. */
  readonly packages: string;
  /** The bundles of its input files, and their paths below /input. */
  readonly files: readonly (readonly [bundle: string, path: string])[];
}

export interface Zygote {
  /** Aborts when it ends. */
  readonly died: AbortSignal;
  /** How many ms the import of each module of its preload took, as it says itself. */
  readonly tookMs: ReadonlyMap<string, number>;
  readonly open: (order: JobOrder) => ForkedJob;
  /** Lets it end with its last job. */
  readonly retire: () => void;
}

interface ForkedJob {
  readonly channel: ReturnType<typeof openChannel>;
  /** Resolves when nothing of it is left, and rejects if the mother dies. */
  readonly gone: Promise<Gone>;
  /** Kills it; resolves when it is gone. A mother that takes too long for that is ended. */
  readonly close: () => Promise<void>;
}

/** A container in which zygotes fork jobs. */
export interface Mother {
  readonly containerId: string;
  readonly machine: Architecture;
  /** Aborts when the mother ends. */
  readonly died: AbortSignal;
  /** @throws NotForkable; EngineError if the mother ends; the signal's reason. */
  readonly startZygote: (order: ZygoteOrder, signal: AbortSignal) => Promise<Zygote>;
  /**
   * Lets each zygote end with its last job, and the mother with its last zygote. Zygotes that are
   * just starting still serve the jobs that wait for them.
   */
  readonly retire: () => void;
  readonly isRetired: () => boolean;
  /** Ends the mother and everything in it. */
  readonly close: () => Promise<void>;
}

const callMs = 30_000;
/** How long a mother may take to answer before it counts as stuck, in ms. */
const answerWithinMs = 30_000;
/** So many unanswered questions in a row mean that it is stuck. One alone may be due to a pause of the agent. */
const questions = 3;

/** @throws EngineError; the signal's reason. No container is left in either case. */
export async function startMother(
  engine: Engine,
  spec: MotherSpec,
  image: string,
  label: string,
  settings: MotherSettings,
  signal: AbortSignal,
  answerMs = answerWithinMs,
): Promise<Mother> {
  const containerId = await engine.create(
    motherProfile(spec, image, label),
    AbortSignal.timeout(callMs),
  );
  let removal: Promise<void> | null = null;
  // Only once: the engine answers a second request before the first one is done.
  const remove = (): Promise<void> =>
    (removal ??= engine.remove(containerId, AbortSignal.timeout(callMs)));
  try {
    const link = linkOf(await engine.attach(containerId, signal));
    link.input.write(motherProgram(settings));
    await engine.start(containerId, signal);
    return await connect(containerId, link, remove, signal, answerMs);
  } catch (error) {
    await remove().catch(() => {});
    throw error;
  }
}

type Receiver = (type: string, payload: Buffer | null) => void;

async function connect(
  containerId: string,
  link: Link,
  remove: () => Promise<void>,
  signal: AbortSignal,
  answerMs: number,
): Promise<Mother> {
  const receivers = new Map<number, Receiver>();
  const end = new AbortController();
  const hello = Promise.withResolvers<Hello>();
  /** Zygotes that have not ended, each with the function that retires it. */
  const zygotes = new Map<number, () => void>();
  let isRetired = false;
  let removal: Promise<void> | undefined;
  let numbers = 0;
  const send = link.input.write.bind(link.input);

  function fail(error: Error): void {
    if (end.signal.aborted) return;
    end.abort(error);
    hello.reject(error);
    for (const receive of receivers.values()) receive("", null);
    receivers.clear();
    link.destroy();
  }

  async function read(): Promise<void> {
    const decode = switchDecoder();
    for await (const chunk of link.output) {
      for (const { number, type, payload } of decode(chunk)) {
        if (type === "H") hello.resolve(parseMessage(Hello, payload));
        else receivers.get(number)?.(type, payload);
      }
    }
    throw new EngineError("not_forked", `the mother ended: ${link.diagnostics().trim()}`);
  }
  read().catch(fail);
  const giveUp = (): void => fail(signal.reason as Error);
  signal.addEventListener("abort", giveUp);
  const { machine } = await hello.promise.finally(() =>
    signal.removeEventListener("abort", giveUp),
  );

  async function startZygote(order: ZygoteOrder, limit: AbortSignal): Promise<Zygote> {
    limit.throwIfAborted();
    if (end.signal.aborted) throw end.signal.reason as Error;
    if (isRetired) throw new EngineError("not_forked", "the mother takes no more zygotes");
    const number = ++numbers;
    const ready = Promise.withResolvers<ReadonlyMap<string, number>>();
    const ended = new AbortController();
    const quit = (): void => void send(encodeSwitchFrame(number, "X"));
    let unanswered = 0;
    let isReady = false;
    receivers.set(number, (type, payload) => {
      if (type === "P") return void (unanswered = 0);
      if (type === "Y") {
        const { problem, took_ms } = readyOf(payload!);
        if (problem === "") return ready.resolve(new Map(Object.entries(took_ms)));
        quit();
        return ready.reject(new NotForkable(problem));
      }
      const told = payload && parseMessage(ZygoteEnd, payload);
      receivers.delete(number);
      zygotes.delete(number);
      const error = told
        ? new NotForkable(`${told.problem}: ${told.output}`.trim(), { mayPass: true })
        : new EngineError("not_forked", "the mother ended");
      ready.reject(error);
      ended.abort(error);
      closeIfDone();
    });
    zygotes.set(number, () => isReady && quit());
    send(encodeSwitchFrame(number, "Z", Buffer.from(JSON.stringify(order))));
    const refuse = (): void => ready.reject(limit.reason as Error);
    limit.addEventListener("abort", refuse);
    const asking = setInterval(() => {
      if (unanswered === questions) fail(new EngineError("not_forked", "the mother is stuck"));
      else send(encodeSwitchFrame(number, "P"));
      unanswered += 1;
    }, answerMs / questions);
    ready.promise.catch(quit);
    const tookMs = await ready.promise.finally(() => {
      limit.removeEventListener("abort", refuse);
      clearInterval(asking);
    });
    isReady = true;
    // The jobs that wait for this zygote are opened first.
    if (isRetired) setImmediate(quit);
    return { died: ended.signal, tookMs, open: (job) => openJob(number, job), retire: quit };
  }

  function openJob(zygote: number, order: JobOrder): ForkedJob {
    const number = ++numbers;
    const channel = openChannel(number, send);
    const gone = Promise.withResolvers<Gone>();
    gone.promise.catch(() => {});
    receivers.set(number, (type, payload) => {
      if (payload === null) {
        channel.take(null);
        return gone.reject(end.signal.reason as Error);
      }
      channel.take({ number, type, payload });
      if (type !== "G") return;
      receivers.delete(number);
      gone.resolve(parseMessage(Gone, payload));
    });
    // A job that is sent at once goes in the same write.
    link.input.cork();
    process.nextTick(() => link.input.uncork());
    if (end.signal.aborted) receivers.get(number)?.("", null);
    else send(encodeSwitchFrame(number, "O", Buffer.from(JSON.stringify({ zygote, ...order }))));
    return {
      channel,
      gone: gone.promise,
      async close() {
        channel.link.destroy();
        const stuck = setTimeout(() => void close().catch(() => {}), answerMs);
        await gone.promise.catch(() => {}).finally(() => clearTimeout(stuck));
      },
    };
  }

  function closeIfDone(): void {
    if (isRetired && zygotes.size === 0) close().catch(() => {});
  }

  function close(): Promise<void> {
    removal ??= remove();
    fail(new FrameError("the mother was closed"));
    return removal;
  }

  return {
    containerId,
    machine,
    died: end.signal,
    startZygote,
    isRetired: () => isRetired,
    retire() {
      isRetired = true;
      for (const retireZygote of zygotes.values()) retireZygote();
      closeIfDone();
    },
    close,
  };
}

/** A zygote may send anything: an image's modules have run in it. */
function readyOf(payload: Buffer): z.infer<typeof ZygoteReady> {
  try {
    return parseMessage(ZygoteReady, payload);
  } catch {
    return { problem: "the zygote sent something else than that it is ready", took_ms: {} };
  }
}

/** Bytes that may be on their way for one job in one direction; python/mother.py has the same. */
export const windowBytes = 256 * 1024;
const pieceBytes = 32 * 1024;
/** Bytes of a job's stderr that are kept for a diagnosis. */
const diagnosticBytes = 4096;

/** Opens the agent's end of one job's bytes: `send` writes to the mother's stream. */
export function openChannel(number: number, send: Duplex["write"]) {
  let credit = windowBytes;
  let unconsumed: Buffer[] = [];
  let consumedBytes = 0;
  let diagnostics = "";
  let isOver = false;
  let wake: (() => void) | null = null;
  /** Bytes that wait for credit, and the callback for when they are sent. */
  let unsent: Buffer = Buffer.alloc(0);
  let whenSent: (() => void) | null = null;

  function pour(): void {
    while (credit > 0 && unsent.length > 0) {
      const piece = unsent.subarray(0, Math.min(credit, pieceBytes));
      credit -= piece.length;
      send(encodeSwitchFrame(number, "D", piece));
      unsent = unsent.subarray(piece.length);
    }
    if (unsent.length > 0 && !isOver) return;
    const told = whenSent;
    whenSent = null;
    told?.();
  }

  function put(bytes: Buffer, done: () => void): void {
    unsent = bytes;
    whenSent = done;
    pour();
  }

  const input = new Writable({
    write: (bytes: Buffer, _encoding, done) => put(bytes, done),
    writev: (chunks, done) => put(Buffer.concat(chunks.map(({ chunk }) => chunk as Buffer)), done),
  });
  input.on("error", () => {});

  /** Gives the job credit for what has been read. */
  function consume(bytes: number): void {
    consumedBytes += bytes;
    if (consumedBytes < windowBytes / 2 || isOver) return;
    const word = Buffer.alloc(4);
    word.writeUInt32BE(consumedBytes);
    consumedBytes = 0;
    send(encodeSwitchFrame(number, "C", word));
  }

  async function* output(): AsyncGenerator<Uint8Array> {
    for (;;) {
      const chunks = unconsumed;
      unconsumed = [];
      for (const chunk of chunks) {
        yield chunk;
        consume(chunk.length);
      }
      if (unconsumed.length > 0) continue;
      if (isOver) return;
      await new Promise<void>((resolve) => (wake = resolve));
    }
  }

  function end(): void {
    isOver = true;
    pour();
    wake?.();
  }

  const link: Link = {
    input,
    output: output(),
    diagnostics: () => diagnostics,
    destroy() {
      if (isOver) return;
      send(encodeSwitchFrame(number, "K"));
      unconsumed = [];
      end();
    },
  };
  return {
    /** As if the job's PID 1 had a stream of its own. Its `destroy` kills the job. */
    link,
    /** Takes a frame of the job; the end of the mother is `null`. */
    take: (frame: SwitchFrame | null): void => {
      if (frame === null || frame.type === "G") return end();
      switch (frame.type) {
        case "D":
          if (isOver) return;
          unconsumed.push(frame.payload);
          return wake?.();
        case "C":
          credit += frame.payload.readUInt32BE(0);
          return pour();
        case "E":
          diagnostics = (diagnostics + frame.payload.toString("utf8")).slice(-diagnosticBytes);
          return;
        default:
          throw new FrameError(`a frame ${frame.type} of a job`);
      }
    },
  };
}
