import { concatBytes, decodeUtf8 } from "../../shared/bytes.ts";
import { writeJson } from "../../shared/json.ts";
import {
  endOutputMaxBytes,
  type EventData,
  isTerminal,
  type JobEvent,
  liveBytes,
  type StreamName,
  streamNames,
} from "../../shared/wire/executions.ts";
import { findAgent } from "../agents/fleet.ts";
import { backstopMs, type ClientDeps } from "../deps.ts";
import {
  findOutput,
  itemsAfter,
  type Offsets,
  type Part,
  readOutput,
  readResultPart,
  readSmallOutput,
  windowBytes,
} from "../jobs/output.ts";
import { explainWait, timestamp, toRecord, toResultItem, toToolCall } from "../jobs/read.ts";
import { emptyPayload, type ExecutionRow, findExecution, queuePosition } from "../jobs/sql.ts";
import { cancelIfRefused, cancelUnlessEnded, endIfOverdue, keepFollowed } from "../jobs/wait.ts";
import { isStoreOutage, rideOut } from "../store/database.ts";

/**
 * The events of a job from a cursor on, as they happen, up to its `end`; "idle" where nothing has happened
 * for long. It reads only as fast as it is read, and any process can continue it. It ends early when the
 * signal aborts or the record is removed.
 *
 * @throws AppError 401 when the client's key has become void.
 */
export async function* follow(
  deps: ClientDeps,
  id: string,
  from: EventCursor | undefined,
  signal: AbortSignal,
): AsyncGenerator<JobEvent | "idle"> {
  const { db, notifier, now, silenceMs } = deps;
  const wakes = notifier.subscribe([`output:${id}`]);
  const readEvents = createEventReader(deps, from);
  let spokeAt = now();
  try {
    // Clients and proxies see at once that the stream has begun.
    yield "idle";
    while (!signal.aborted) {
      await deps.recheck();
      const execution = await db.share(`execution ${id}`, () => findExecution(db, id));
      if (!execution) return;
      if (await endIfOverdue(deps, execution)) continue;
      const isOver = isTerminal(execution.status);
      // Before the first event: an agent that claims the job after it knows that somebody follows it.
      if (!isOver && (await keepFollowed(deps, execution))) continue;
      await db.durable();
      for await (const event of readEvents(execution)) {
        await deps.recheck();
        yield event;
        spokeAt = now();
        if (signal.aborted) return;
      }
      if (isOver) return;
      await wakes.next(backstopMs, signal);
      if (now() - spokeAt < silenceMs) continue;
      yield "idle";
      spokeAt = now();
    }
  } finally {
    wakes.close();
  }
}

/**
 * The events of a synchronous job, up to its end, also across outages of the database. If its client hangs
 * up or no agent is left to run it, the job is cancelled. With an idempotency key it continues, because a
 * repeated request may ask for its result.
 */
export async function* followSync(
  deps: ClientDeps,
  id: string,
  hasKey: boolean,
  signal: AbortSignal,
): AsyncGenerator<JobEvent | "idle"> {
  let from: EventCursor | undefined;
  let isOver = hasKey;
  try {
    while (from?.state !== "ended" && !signal.aborted) {
      try {
        for await (const event of follow(deps, id, from, signal)) {
          if (event !== "idle" && event.id !== undefined) from = parseCursor(event.id);
          isOver ||= from?.state === "ended";
          yield event;
          if (event !== "idle" && "status" in event.data && event.data.status === "queued")
            await cancelIfRefused(deps, id, hasKey);
        }
        if (from?.state !== "ended" && !(await findExecution(deps.db, id))) return;
      } catch (error) {
        if (!isStoreOutage(error)) throw error;
        await rideOut(deps, () => findExecution(deps.db, id));
      }
    }
  } finally {
    if (!isOver) await rideOut(deps, () => cancelUnlessEnded(deps, id)).catch(() => {});
  }
}

type Events = AsyncGenerator<JobEvent>;

/** Returns a function that yields the events a client lacks, given a state of the execution. */
export function createEventReader(deps: ClientDeps, from: EventCursor | undefined) {
  let follower: FollowerPosition | undefined = from && continueFrom(deps, from);
  let explained = { at: -Infinity, text: "" };

  async function* queued(e: ExecutionRow): Events {
    const at = deps.now();
    if (at - explained.at < backstopMs) return;
    const position = await queuePosition(deps.db, e);
    const reason = await explainWait(deps, e, position);
    const isSame = `${position} ${reason}` === explained.text;
    explained = { at, text: `${position} ${reason}` };
    if (isSame) return;
    const data = { ...common(e, e.attempt, at), status: "queued" as const, reason, position };
    yield { event: "status", data };
  }

  return async function* readEvents(e: ExecutionRow): Events {
    const isOver = isTerminal(e.status);
    const current = e.leaseId === null ? e.attempt + 1 : e.attempt;
    // Output of lost attempts can be replayed until the end.
    follower ??= beginAttempt(deps, isOver ? current : 1);
    // An agent gave back a lease that it had not used: the attempt begins again.
    if (follower.cursor.attempt > current) follower = beginAttempt(deps, current);
    for (
      ;
      follower.cursor.attempt < current;
      follower = beginAttempt(deps, follower.cursor.attempt + 1)
    ) {
      if (follower.cursor.state === "lost") continue;
      if (!isOver) yield* follower.texts(e, follower.stored(e.id));
      const { attempt } = follower.cursor;
      yield {
        event: "retry",
        id: follower.move({ state: "lost" }),
        data: common(e, attempt, e.availableAt),
      };
      explained = { at: -Infinity, text: "" };
    }
    if (e.status === "queued") {
      yield* queued(e);
      return;
    }
    if (e.leaseId !== null) {
      if (follower.cursor.state === "new") yield await running(deps, e, follower);
      if (!isOver || e.resultHash === null) yield* follower.texts(e, follower.stored(e.id));
      if (!isOver) {
        yield* shownItems(deps, e, follower);
        yield* withheld(deps, e, follower);
        return;
      }
      if (e.resultHash !== null) yield* result(deps, e, follower);
      for (const name of streamNames) yield* follower.flush(e, name);
      yield* shownItems(deps, e, follower);
    }
    yield* ended(deps, e, follower);
  };
}

function common(e: ExecutionRow, attempt: number, at: number | null): EventData<"retry"> {
  return { job_id: e.id, attempt, at: timestamp(at ?? e.createdAt) };
}

async function running(
  { db }: ClientDeps,
  e: ExecutionRow,
  follower: FollowerPosition,
): Promise<JobEvent> {
  const agent = e.agentId === null ? undefined : await findAgent(db, e.agentId);
  const id = follower.move({ state: "running" });
  const data = { ...common(e, e.attempt, e.startedAt), agent: agent?.name ?? null };
  return { event: "status", id, data: { ...data, status: "running" } };
}

/**
 * What the code has shown, and its calls that wait for an answer. The offsets of an item say after which output it
 * came. A result brings items and their output at once: where `e` is of before it, they wait for the next state.
 */
async function* shownItems(
  { db }: ClientDeps,
  e: ExecutionRow,
  follower: FollowerPosition,
): Events {
  const isRunning = e.status === "running";
  while (e.results !== null) {
    const { items, attempt } = follower.cursor;
    const read = () => itemsAfter(db, { executionId: e.id, attempt }, items, isRunning);
    const rows = await db.share(`items ${e.id} ${attempt} ${items} ${isRunning}`, read);
    if (rows.length === 0) return;
    await db.durable();
    for (const row of rows) {
      const id = follower.move({ items: row.number });
      const place = common(e, attempt, row.at);
      if (row.kind === "display") {
        yield { event: "display", id, data: { ...place, ...toResultItem(row) } };
      } else if (row.answered === null && isRunning) {
        yield { event: "tool_call", id, data: { ...place, ...toToolCall(row) } };
      }
    }
  }
}

/** Output of a stream beyond this many bytes is sent when the code has ended. */
function* withheld(
  { config, now }: ClientDeps,
  e: ExecutionRow,
  follower: FollowerPosition,
): Generator<JobEvent> {
  const offset = liveBytes(config.max_stdout_bytes);
  for (const stream of streamNames) {
    if (follower.cursor.withheld[stream] || follower.read(stream) < offset) continue;
    const id = follower.move({ withheld: { ...follower.cursor.withheld, [stream]: true } });
    yield { event: "held", id, data: { ...common(e, e.attempt, now()), stream, offset } };
  }
}

async function* result(deps: ClientDeps, e: ExecutionRow, follower: FollowerPosition): Events {
  for (const name of streamNames) {
    follower.drop(name);
    const from = follower.cursor[name];
    yield* follower.texts(e, resultOutput(deps, e.id, name, from, e.endedAt ?? 0));
    yield* follower.flush(e, name);
  }
}

async function* ended({ db }: ClientDeps, e: ExecutionRow, follower: FollowerPosition): Events {
  const isTruncated = { stdout: e.stdoutTruncated, stderr: e.stderrTruncated };
  for (const stream of streamNames) {
    if (!isTruncated[stream] || follower.cursor.truncated[stream]) continue;
    const id = follower.move({ truncated: { ...follower.cursor.truncated, [stream]: true } });
    yield { event: "truncated", id, data: { ...common(e, e.attempt, e.endedAt), stream } };
  }
  const output = await readSmallOutput(db, e.id, endOutputMaxBytes);
  const isLarge = output === "large";
  const payload = { ...emptyPayload, output: isLarge ? null : output };
  const full = { execution: e, payload, left: {}, artifacts: [], inputFiles: [] };
  const { stdout: _stdout, stderr: _stderr, ...record } = toRecord(full, undefined);
  const more = isLarge && { output_url: `/jobs/${e.id}/result` };
  const data = { ...common(e, e.attempt, e.endedAt), ...record, ...more };
  yield { event: "end", id: follower.move({ state: "ended" }), data };
}

/** How far a client has followed one attempt: its cursor, and the bytes of incomplete characters after it. */
type FollowerPosition = ReturnType<typeof continueFrom>;

/** Largest text of one event in bytes. JSON makes it at most six times as long. */
export const textBytes = 8 * 1024;
const none = new Uint8Array();

function beginAttempt(deps: ClientDeps, attempt: number): FollowerPosition {
  return continueFrom(deps, newCursor(attempt));
}

function continueFrom(deps: ClientDeps, from: EventCursor) {
  let cursor = from;
  let reader: OutputReader | undefined;
  const rest: Record<StreamName, Uint8Array> = { stdout: none, stderr: none };

  /** Moves the cursor, and returns it as the id of the next event. */
  const move = (changes: Partial<EventCursor>): string =>
    formatCursor((cursor = { ...cursor, ...changes }));

  const textEvent = (
    e: ExecutionRow,
    stream: StreamName,
    { text, length }: { text: string; length: number },
    at: number,
  ): JobEvent => ({
    event: stream,
    id: move({ [stream]: cursor[stream] + length }),
    data: { job_id: e.id, attempt: cursor.attempt, at: timestamp(at), text },
  });

  return {
    get cursor(): Readonly<EventCursor> {
      return cursor;
    },
    move,
    /** Bytes of a stream that have been read. */
    read: (stream: StreamName) => cursor[stream] + rest[stream].length,
    /** Drops the bytes of an incomplete character: another source will be read from the cursor on. */
    drop: (stream: StreamName) => void (rest[stream] = none),
    /** Reads the attempt's stored output from here on. */
    stored(executionId: string) {
      reader ??= storedOutput(deps, executionId, cursor.attempt, cursor);
      return reader();
    },
    /** Output as events, each with whole characters. */
    async *texts(e: ExecutionRow, output: AsyncIterable<Arrived>): Events {
      for await (const { stream, data, at } of output) {
        for (let done = 0; done < data.length; done += textBytes) {
          const split = splitText(rest[stream], data.subarray(done, done + textBytes));
          rest[stream] = split.rest;
          if (split.length > 0) yield textEvent(e, stream, split, at);
        }
      }
    },
    /** The bytes of a character that stays incomplete at the end of the stream, as an event. */
    *flush(e: ExecutionRow, stream: StreamName): Generator<JobEvent> {
      const bytes = rest[stream];
      if (bytes.length === 0) return;
      rest[stream] = none;
      const split = { text: decodeUtf8(bytes), length: bytes.length };
      yield textEvent(e, stream, split, e.endedAt ?? e.createdAt);
    },
  };
}

/** Output, and when it arrived (epoch ms). */
type Arrived = Part & { at: number };

/** Reads the output that has arrived since the last call. */
type OutputReader = () => AsyncGenerator<Arrived>;

/** Reads what is stored of one attempt, in the order in which the code wrote it. */
export function storedOutput(
  { db }: ClientDeps,
  executionId: string,
  attempt: number,
  from: Offsets,
): OutputReader {
  const of = { executionId, attempt };
  let next: number | undefined;
  return async function* read() {
    next ??= await findOutput(db, of, from);
    for (;;) {
      const position: number = next;
      const key = `output ${executionId} ${attempt} ${position}`;
      const rows = await db.share(key, () => readOutput(db, of, position));
      if (rows.length === 0) return;
      await db.durable();
      for (const { parts, at, next: after } of rows) {
        for (const part of parts) {
          // The first row may begin before what the client has.
          const known = Math.max(0, from[part.stream] - part.offset);
          if (known >= part.data.length) continue;
          yield { ...part, offset: part.offset + known, data: part.data.subarray(known), at };
        }
        next = after;
      }
    }
  };
}

/** SQLite reads the whole stream for each part of it, so a part is sent as several events. */
const resultPartBytes = 4 * windowBytes;

/** Reads a stream of a result that arrived at a time. */
export async function* resultOutput(
  { db }: ClientDeps,
  id: string,
  stream: StreamName,
  from: number,
  at: number,
): AsyncGenerator<Arrived> {
  for (let offset = from; ;) {
    const part = { offset, length: resultPartBytes };
    const key = `result ${id} ${stream} ${offset}`;
    const read = await db.share(key, () => readResultPart(db, id, stream, part));
    if (read.length === 0) return;
    for (let from = 0; from < read.length; from += windowBytes) {
      const data = read.subarray(from, from + windowBytes);
      yield { stream, offset, data, at };
      offset += data.length;
    }
  }
}

export type EventFormat = "sse" | "lines";

export const contentTypes = {
  sse: "text/event-stream",
  lines: "application/x-ndjson",
} as const satisfies Record<EventFormat, string>;

/** The media type that a client prefers; Server-Sent Events unless it asks for lines. */
export function formatOf(accept: string | undefined): EventFormat {
  const types = (accept ?? "").split(",").map((type) => type.split(";")[0]?.trim().toLowerCase());
  const lines = types.indexOf(contentTypes.lines);
  const sse = types.indexOf(contentTypes.sse);
  return lines !== -1 && (sse === -1 || lines < sse) ? "lines" : "sse";
}

/** Makes bytes of events. "idle" becomes a line that clients ignore. */
export function encodeAs(format: EventFormat): (event: JobEvent | "idle") => Uint8Array {
  const write = format === "sse" ? asServerSent : asLine;
  return (event) => utf8.encode(write(event));
}

const utf8 = new TextEncoder();

function asServerSent(event: JobEvent | "idle"): string {
  if (event === "idle") return ":\n\n";
  const id = event.id === undefined ? "" : `id: ${event.id}\n`;
  return `${id}event: ${event.event}\ndata: ${writeJson(event.data)}\n\n`;
}

function asLine(event: JobEvent | "idle"): string {
  if (event === "idle") return "\n";
  const { id, event: name, data } = event;
  return `${writeJson({ ...(id !== undefined && { id }), event: name, data })}\n`;
}

/**
 * The position of a client in the events of a job. It names no event: it says what the client has, so that
 * it holds on stored output and on a record alike, in every process.
 */
export interface EventCursor {
  attempt: number;
  /** `new`: has nothing of this attempt. `lost`: has its `retry`. `ended`: has the `end`. */
  state: "new" | "running" | "lost" | "ended";
  /** Streams of which the client has the event `held` or `truncated`. */
  withheld: Record<StreamName, boolean>;
  truncated: Record<StreamName, boolean>;
  /** Bytes of each stream that the client has; always at the boundary of a character. */
  stdout: number;
  stderr: number;
  /** Number of the last item that the client has. */
  items: number;
}

const letters = { new: "n", running: "r", lost: "l", ended: "e" } as const;
const states = Object.fromEntries(
  Object.entries(letters).map(([state, letter]) => [letter, state]),
) as Record<string, EventCursor["state"]>;

export function newCursor(attempt: number): EventCursor {
  const none = { stdout: false, stderr: false };
  return { attempt, state: "new", withheld: none, truncated: none, stdout: 0, stderr: 0, items: 0 };
}

/** The cursor as the id of an event. Clients must not parse it. */
export function formatCursor({
  attempt,
  state,
  withheld,
  truncated,
  stdout,
  stderr,
  items,
}: EventCursor): string {
  const told = [withheld.stdout, withheld.stderr, truncated.stdout, truncated.stderr];
  const bits = told.reduce((sum, isTold, i) => sum + (isTold ? 2 ** i : 0), 0);
  const own = items === 0 ? [] : [items];
  return [attempt, letters[state] + bits.toString(16), stdout, stderr, ...own].join("-");
}

/** Undefined if the text is no cursor. */
export function parseCursor(text: string): EventCursor | undefined {
  const match = /^(\d{1,9})-([nrle])([0-9a-f])-(\d{1,15})-(\d{1,15})(?:-(\d{1,4}))?$/.exec(text);
  if (!match) return undefined;
  const bits = parseInt(match[3]!, 16);
  const isSet = (i: number): boolean => (bits & (2 ** i)) !== 0;
  return {
    attempt: Math.max(1, Number(match[1])),
    state: states[match[2]!]!,
    withheld: { stdout: isSet(0), stderr: isSet(1) },
    truncated: { stdout: isSet(2), stderr: isSet(3) },
    stdout: Number(match[4]),
    stderr: Number(match[5]),
    items: Number(match[6] ?? 0),
  };
}

/** Text of whole characters, and the bytes of an incomplete character after it. */
interface SplitText {
  text: string;
  /** Number of bytes that `text` was decoded from. */
  length: number;
  rest: Uint8Array;
}

/**
 * Decodes the bytes of a stream that follow `rest`, up to the last whole character. All texts together
 * equal the decoded stream, wherever it was cut.
 */
export function splitText(rest: Uint8Array, more: Uint8Array): SplitText {
  const bytes = rest.length === 0 ? more : concatBytes([rest, more]);
  const length = bytes.length - incompleteBytes(bytes);
  return {
    text: decodeUtf8(bytes.subarray(0, length)),
    length,
    rest: bytes.slice(length),
  };
}

/** Number of bytes at the end that begin a character of UTF-8 which more bytes could complete: 0 to 3. */
function incompleteBytes(bytes: Uint8Array): number {
  for (let length = 1; length <= Math.min(3, bytes.length); length++) {
    const lead = bytes[bytes.length - length]!;
    if (lead < 0x80) return 0;
    if (lead < 0xc0) continue;
    return isBeginning(bytes.subarray(bytes.length - length)) ? length : 0;
  }
  return 0;
}

/** Whether a lead byte and continuation bytes begin a character without completing it, by WHATWG's decoder. */
function isBeginning(bytes: Uint8Array): boolean {
  const lead = bytes[0]!;
  const second = bytes[1];
  const needed = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (bytes.length >= needed) return false;
  if (second === undefined) return true;
  const [least, most] = seconds[lead] ?? [0x80, 0xbf];
  return second >= least && second <= most;
}

/** Ranges of the second byte that exclude overlong forms, surrogates and what is beyond U+10FFFF. */
const seconds: Record<number, [least: number, most: number]> = {
  0xe0: [0xa0, 0xbf],
  0xed: [0x80, 0x9f],
  0xf0: [0x90, 0xbf],
  0xf4: [0x80, 0x8f],
};
