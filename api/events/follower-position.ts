import { decodeUtf8 } from "../../shared/bytes.ts";
import type { JobEvent } from "../../shared/wire/client/events.ts";
import type { StreamName } from "../../shared/wire/output.ts";
import type { ClientDeps } from "../deps.ts";
import { type EventCursor, formatCursor, newCursor } from "../domain/event-cursor.ts";
import { splitText } from "../domain/split-text.ts";
import { timestamp } from "../jobs/record.ts";
import type { ExecutionRow } from "../store/jobs/row.ts";
import { type Arrived, type OutputReader, storedOutput } from "./output.ts";

/** How far a client has followed one attempt: its cursor, and the bytes of incomplete characters after it. */
export interface FollowerPosition {
  readonly cursor: Readonly<EventCursor>;
  /** Moves the cursor, and returns it as the id of the next event. */
  move(changes: Partial<EventCursor>): string;
  /** Reads the attempt's stored output from here on. */
  stored(executionId: string): AsyncGenerator<Arrived>;
  /** Bytes of a stream that have been read. */
  read(stream: StreamName): number;
  /** Output as events, each with whole characters. */
  texts(e: ExecutionRow, output: AsyncIterable<Arrived>): AsyncGenerator<JobEvent>;
  /** The bytes of a character that stays incomplete at the end of the stream, as an event. */
  flush(e: ExecutionRow, stream: StreamName): Generator<JobEvent>;
  /** Drops the bytes of an incomplete character: another source will be read from the cursor on. */
  drop(stream: StreamName): void;
}

/** Largest text of one event in bytes. JSON makes it at most six times as long. */
const textBytes = 8 * 1024;
const none = new Uint8Array();

export function beginAttempt(deps: ClientDeps, attempt: number): FollowerPosition {
  return continueFrom(deps, newCursor(attempt));
}

export function continueFrom(deps: ClientDeps, from: EventCursor): FollowerPosition {
  let cursor = from;
  let reader: OutputReader | undefined;
  const rest: Record<StreamName, Uint8Array> = { stdout: none, stderr: none };

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
    get cursor() {
      return cursor;
    },
    move,
    read: (stream) => cursor[stream] + rest[stream].length,
    drop: (stream) => void (rest[stream] = none),
    stored(executionId) {
      reader ??= storedOutput(deps, executionId, cursor.attempt, cursor);
      return reader();
    },
    async *texts(e, output) {
      for await (const { stream, data, at } of output) {
        for (let done = 0; done < data.length; done += textBytes) {
          const split = splitText(rest[stream], data.subarray(done, done + textBytes));
          rest[stream] = split.rest;
          if (split.length > 0) yield textEvent(e, stream, split, at);
        }
      }
    },
    *flush(e, stream) {
      const bytes = rest[stream];
      if (bytes.length === 0) return;
      rest[stream] = none;
      const split = { text: decodeUtf8(bytes), length: bytes.length };
      yield textEvent(e, stream, split, e.endedAt ?? e.createdAt);
    },
  };
}
