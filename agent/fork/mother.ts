import { z } from "zod";
import type { Engine } from "../engine/engine.ts";
import { linkOf } from "../engine/attach.ts";
import { FrameError } from "../sandbox/protocol/frames.ts";
import type { Link } from "../sandbox/protocol/link.ts";
import { parseMessage } from "../sandbox/protocol/messages.ts";
import type { Architecture } from "../sandbox/filter/syscall-numbers.ts";
import { EngineError } from "../sandbox/errors.ts";
import { type Channel, encodeSwitchFrame, openChannel, switchDecoder } from "./switch.ts";
import { type MotherSpec, motherProfile } from "./mother-profile.ts";
import { type MotherSettings, motherProgram } from "../python/program.ts";

const Hello = z.object({ machine: z.enum(["x86_64", "aarch64"]) });
type Hello = z.infer<typeof Hello>;
const Times = z.record(z.string(), z.number()).default({});
const ZygoteReady = z.object({ problem: z.string(), took_ms: Times });
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
export const Gone = z.object({
  /** Why it never started; null if it did. */
  problem: z.string().nullable(),
  /** Processes that the kernel killed because its memory was full. */
  oom_kills: z.number(),
  /** Whether its zygote ended first, which ends it too. */
  zygote_ended: z.boolean(),
});
export type Gone = z.infer<typeof Gone>;

/** Everything that decides what a zygote is, before its jobs are known. */
export interface ZygoteOrder {
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

export interface JobOrder {
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

export interface ForkedJob {
  readonly channel: Channel;
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
