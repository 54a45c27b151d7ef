import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import type { OutputPart, StreamName } from "../../shared/wire/executions.ts";
import type { LeasedJob } from "../../shared/wire/leases.ts";
import type { Client } from "../client/client.ts";
import { ApiError } from "../client/http.ts";
import type { SpoolDir } from "../host/files.ts";
import type { Gpus } from "../host/gpus.ts";
import { JobRefusal } from "../host/policy.ts";
import type { CallAnswer, CallItem, DisplayItem } from "../sandbox/job.ts";
import { EngineError } from "../sandbox/sandbox.ts";
import type { RunReport, Verdict } from "../sandbox/verdict.ts";
import { createChangeSignal, OVER } from "../waiting.ts";
import { isStopped, type Lease, LeaseDropped } from "./leases.ts";
import {
  engineLost,
  failureOutcome,
  motherLost,
  type Outcome,
  postOutcome,
  resultOfReport,
  toRunItem,
} from "./post.ts";
import { type Acquired, filesOf, type FindPlace, openJobPlace, type PlaceDeps } from "./place.ts";

export type RunDeps = PlaceDeps & {
  readonly client: Pick<
    Client,
    "started" | "logs" | "items" | "answers" | "upload" | "result" | "release"
  >;
  readonly spool: Pick<SpoolDir, "folder">;
  readonly gpus: Pick<Gpus, "lease"> | null;
  readonly judge: (report: RunReport) => Verdict;
  readonly log: Logger;
};

/** The state of one run. */
type Run = {
  readonly lease: Lease;
  readonly live: ReturnType<typeof createLiveReport>;
  installMs: number;
  startedMs: number | null;
};

/**
 * Runs one leased job, from its container to its posted result. Leaves no container and no file.
 * `takes` is called before the result is posted; if it returns true, the answer may bring the next
 * jobs, which are returned.
 *
 * @throws ApiError of kind `unauthorized`.
 */
export async function runLease(
  agent: RunDeps,
  lease: Lease,
  takes?: () => boolean,
  findPlace: FindPlace = openJobPlace,
): Promise<readonly LeasedJob[]> {
  const { correlation_id, traceparent } = lease.job;
  const log = agent.log.with({
    correlationId: correlation_id,
    ...(traceparent && { traceparent }),
  });
  // Before any await: the next poll must not offer these GPUs again.
  using gpus = agent.gpus?.lease(lease.job.job_type.gpus);
  const deps = { ...agent, log };
  const run: Run = { lease, live: createLiveReport(deps, lease), installMs: 0, startedMs: null };
  try {
    await using folder = deps.spool.folder(lease.job.lease_id);
    const took = (ms: number): void => void (run.installMs = ms);
    await using files = filesOf(deps, lease.job);
    await using place = await findPlace(deps, lease, { files, gpus, took });
    const outcome = await runCode(deps, run, place.acquired, folder.path);
    // Removing a container takes more CPU than a short job, so the result is posted first, unless
    // artifacts have to be uploaded before it.
    if (outcome.kind === "result" && outcome.artifacts.length > 0) {
      await place[Symbol.asyncDispose]();
      lease.leavePlace();
    }
    return await postOutcome(deps, lease, outcome, takes);
  } catch (error) {
    if (error instanceof ApiError) throw error;
    if (error instanceof JobRefusal)
      log.warn("the job is not run: {reason}", { reason: lastLine(error.message) });
    if (isInfrastructure(error, lease)) {
      log.error("run failed: {reason}", { reason: describeError(error) });
      // Before the lease is released: the next poll must not offer slots of an engine that is gone.
      await deps.engine.checkNow();
    }
    return await postOutcome(deps, lease, failureOutcome(error, lease, timesOf(deps, run)), takes);
  } finally {
    await run.live.close();
  }
}

/** The last line: pip puts the cause there. */
function lastLine(text: string): string {
  return text.slice(text.lastIndexOf("\n") + 1);
}

function isInfrastructure(error: unknown, { cancel, drop }: Lease): boolean {
  return !(error instanceof JobRefusal) && !cancel.signal.aborted && !drop.signal.aborted;
}

/** @throws EngineError if the code never started. */
async function runCode(
  deps: RunDeps,
  run: Run,
  acquired: Acquired,
  spoolDir: string,
): Promise<Outcome> {
  const { live } = run;
  const { cancel, drop } = run.lease;
  const { sandbox, jobRef } = acquired;
  const report = await sandbox.run(acquired.job, {
    signal: AbortSignal.any([cancel.signal, drop.signal]),
    spoolDir,
    onStarted: () => {
      run.startedMs = deps.clock.nowMs();
      live.started(jobRef);
    },
    onOutput: live.output,
    onItem: live.item,
    onCall: live.call,
  });
  live.ended();
  drop.signal.throwIfAborted();
  if (!report.started)
    throw new EngineError("other", report.lostReason ?? "the code did not begin");
  if (report.isHostLost && !cancel.signal.aborted)
    return (await deps.engine.checkNow()) ? motherLost : engineLost;
  const verdict = withStopReason(deps.judge(report), run.lease);
  // Code that kills its own container must not be run again; the lease is released only if the
  // engine is gone too. Where jobs are forked, the mother has already said whose fault the loss is.
  const mayBeOurs = verdict.error?.type === "internal_error" && report.isHostLost === undefined;
  if (mayBeOurs && !(await deps.engine.checkNow())) return engineLost;
  const stored = live.lastItemSent();
  const unsent = { ...report, items: report.items.filter(({ number }) => number > stored) };
  const result = resultOfReport(unsent, verdict, timesOf(deps, run), acquired);
  return { kind: "result", result, artifacts: report.artifacts };
}

function withStopReason(verdict: Verdict, lease: Lease): Verdict {
  const { error } = verdict;
  if (error?.type !== "cancelled" || !isStopped(lease)) return verdict;
  return { ...verdict, error: { ...error, message: "The agent was stopped while the code ran." } };
}

function timesOf({ clock }: RunDeps, { lease, installMs, startedMs }: Run) {
  return { takenMs: lease.takenMs, installMs, startedMs, endedMs: clock.nowMs() };
}

/** Code that ends sooner reports only its result: two posts at once would delay each other. */
const STARTED_AFTER_MS = 50;
/** Pause between posts of output that nobody follows. */
const UNFOLLOWED_EVERY_MS = 1000;
/** Shortest time between two posts of output that somebody follows. */
const FOLLOWED_EVERY_MS = 100;

/** Reports the run to the API while the code runs, and never delays the code. */
function createLiveReport({ client, clock }: Pick<RunDeps, "client" | "clock">, lease: Lease) {
  const { lease_id } = lease.job;
  const { followed } = lease;
  const end = new AbortController();
  const closing = new AbortController();
  const unsent = createUnsent();
  const written = createChangeSignal();
  const tasks: Promise<void>[] = [];
  const answers = createAnswers(client, lease_id);
  const items = createUnsentItems(async (next, signal) => {
    const report = { items: next.map(toRunItem) };
    followed.learn(await client.items(lease_id, report, signal));
  });
  let postedMs = -Infinity;

  /** Ignores failures, except a lost lease: then it ends the run. */
  async function attempt(task: (signal: AbortSignal) => Promise<void>): Promise<void> {
    try {
      await task(AbortSignal.any([lease.drop.signal, closing.signal]));
    } catch (error) {
      const isLost = error instanceof ApiError && error.kind === "lease_lost";
      if (isLost && !end.signal.aborted)
        lease.drop.abort(new LeaseDropped("the API gave the lease up"));
    }
  }

  /** Code that ends within the wait costs no post and no timer but this one. */
  async function report(jobRef: string): Promise<void> {
    const isFollowed = followed.isOn();
    if (isFollowed) tasks.push(attempt(sendOutput));
    await clock.sleep(STARTED_AFTER_MS, end.signal).catch(() => {});
    if (end.signal.aborted) return;
    tasks.push(attempt((signal) => sendStarted(jobRef, signal)));
    if (!isFollowed) tasks.push(attempt(sendOutput));
  }

  async function sendStarted(jobRef: string, signal: AbortSignal): Promise<void> {
    followed.learn(await client.started(lease_id, { job_ref: jobRef }, signal));
  }

  async function sendOutput(signal: AbortSignal): Promise<void> {
    while (!end.signal.aborted) {
      await (followed.isOn() ? whileFollowed() : whileUnfollowed());
      for (let parts = unsent.take(); parts && !end.signal.aborted; parts = unsent.take()) {
        postedMs = clock.nowMs();
        followed.learn(await client.logs(lease_id, { parts }, signal));
        if (followed.isOn()) break;
      }
      if (!followed.isOn() || end.signal.aborted || items.isEmpty()) continue;
      postedMs = clock.nowMs();
      await items.send(signal);
    }
  }

  /** Waits for output, and for the time since the last post. */
  async function whileFollowed(): Promise<void> {
    await written.waitUntil(() => !unsent.isEmpty() || !items.isEmpty() || end.signal.aborted);
    const waitMs = postedMs + FOLLOWED_EVERY_MS - clock.nowMs();
    if (waitMs > 0) await clock.sleep(waitMs, end.signal).catch(() => {});
  }

  /** Waits for a second, or until somebody follows the job. */
  async function whileUnfollowed(): Promise<void> {
    const begun = new AbortController();
    using _listening = followed.subscribe(() => begun.abort(OVER));
    const over = AbortSignal.any([end.signal, begun.signal]);
    await clock.sleep(UNFOLLOWED_EVERY_MS, over).catch(() => {});
  }

  function finish(): void {
    end.abort(OVER);
    written.notify();
  }

  return {
    started: (jobRef: string) => void tasks.push(report(jobRef)),
    output: (stream: StreamName, bytes: Uint8Array): void => {
      unsent.add(stream, bytes);
      written.notify();
    },
    item: (item: DisplayItem): void => {
      items.add(item);
      written.notify();
    },
    /** Brings a call to the API, and its answer back. */
    call: (call: CallItem, answer: (given: CallAnswer) => void): void => {
      items.add(call);
      tasks.push(attempt(async (signal) => items.sendUpTo(call.number, signal)));
      if (!answers.expect(call.number, answer)) return;
      tasks.push(attempt(async (signal) => answers.fetch(AbortSignal.any([signal, end.signal]))));
    },
    /** Items up to this number are stored. */
    lastItemSent: items.lastSent,
    /** The code has ended: no more output is sent; the result contains all of it. */
    ended: finish,
    /** Aborts posts that are still pending. */
    close: async (): Promise<void> => {
      finish();
      closing.abort(OVER);
      for (const task of tasks) await task;
    },
  };
}

const POST_MAX_BYTES = 256 * 1024;
const POST_MAX_PARTS = 1000;

/**
 * Output that has not been posted yet, in the order in which the code wrote it. Code may change the stream at every
 * byte, so a change costs one number and no object.
 */
export function createUnsent() {
  const waiting = { stdout: createByteQueue(), stderr: createByteQueue() };
  const sent = { stdout: 0, stderr: 0 };
  /** Bytes of each part in order, negative for stderr; those before `next` are taken. */
  let runs: number[] = [];
  let next = 0;

  function add(stream: StreamName, bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    waiting[stream].add(bytes);
    const run = stream === "stdout" ? bytes.length : -bytes.length;
    const last = runs.length - 1;
    if (last >= next && runs[last]! > 0 === run > 0) runs[last]! += run;
    else runs.push(run);
  }

  /** Takes what fits into one post; null if there is nothing. */
  function take(): OutputPart[] | null {
    const parts: OutputPart[] = [];
    let room = POST_MAX_BYTES;
    while (next < runs.length && room > 0 && parts.length < POST_MAX_PARTS) {
      const run = runs[next]!;
      const stream = run > 0 ? "stdout" : "stderr";
      const length = Math.min(Math.abs(run), room);
      const data_base64 = waiting[stream].take(length).toString("base64");
      parts.push({ stream, offset: sent[stream], data_base64 });
      sent[stream] += length;
      room -= length;
      runs[next] = run - Math.sign(run) * length;
      if (runs[next] === 0) next += 1;
    }
    if (next > runs.length / 2) [runs, next] = [runs.slice(next), 0];
    return parts.length > 0 ? parts : null;
  }

  return { add, isEmpty: () => next === runs.length, take };
}

/** Bytes in one buffer that grows by doubling: the caller's buffers are not kept. */
function createByteQueue() {
  let held = Buffer.alloc(0);
  let start = 0;
  let end = 0;
  return {
    add(bytes: Uint8Array): void {
      if (end + bytes.length > held.length) {
        const larger = Buffer.allocUnsafe(2 * (end - start + bytes.length));
        held.copy(larger, 0, start, end);
        [held, start, end] = [larger, 0, end - start];
      }
      held.set(bytes, end);
      end += bytes.length;
    },
    /** The first bytes; valid until the next `add`. */
    take(length: number): Buffer {
      const taken = held.subarray(start, start + length);
      start += length;
      if (start === end) [held, start, end] = [Buffer.alloc(0), 0, 0];
      return taken;
    },
  };
}

/** Each has up to a megabyte. */
const ITEMS_AT_ONCE = 8;

/** What the code shows and calls until the API has it. It is posted in its order, one post at a time. */
function createUnsentItems(
  post: (items: (DisplayItem | CallItem)[], signal: AbortSignal) => Promise<void>,
) {
  let items: (DisplayItem | CallItem)[] = [];
  let last = 0;
  let turn = Promise.resolve();

  async function sendNext(signal: AbortSignal): Promise<void> {
    const next = items.slice(0, ITEMS_AT_ONCE);
    const end = next.at(-1);
    if (end === undefined) return;
    await post(next, signal);
    items = items.slice(next.length);
    last = end.number;
  }

  /** Posts the next few. */
  async function send(signal: AbortSignal): Promise<void> {
    const own = turn.catch(() => {}).then(async () => sendNext(signal));
    turn = own;
    await own;
  }

  return {
    add: (item: DisplayItem | CallItem) => void items.push(item),
    isEmpty: () => items.length === 0,
    /** Number of the last item that the API has; 0 if it has none. */
    lastSent: () => last,
    send,
    /** Posts all up to the one with this number. */
    async sendUpTo(number: number, signal: AbortSignal): Promise<void> {
      const isSent = (): boolean => last >= number;
      while (!isSent()) await send(signal);
    },
  };
}

const ANSWERS_WAIT_S = 20;

/** Calls of one run that wait for their answers. */
function createAnswers(client: Pick<Client, "answers">, leaseId: string) {
  const pending = new Map<number, (given: CallAnswer) => void>();
  let received = 0;

  return {
    /** `answer` gets the answer. Returns whether somebody must fetch answers from now on. */
    expect(number: number, answer: (given: CallAnswer) => void): boolean {
      pending.set(number, answer);
      return pending.size === 1;
    },
    /** Asks the API until no call waits. */
    async fetch(signal: AbortSignal): Promise<void> {
      while (pending.size > 0) {
        const { answers } = await client.answers(leaseId, received, ANSWERS_WAIT_S, signal);
        for (const { number, result_json: resultJson = "null", error } of answers) {
          received += 1;
          pending.get(number)?.(error === undefined ? { resultJson } : { error });
          pending.delete(number);
        }
      }
    },
  };
}
