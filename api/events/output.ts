import type { StreamName } from "../../shared/wire/output.ts";
import type { ClientDeps } from "../deps.ts";
import {
  findOutput,
  type Offsets,
  type Part,
  readOutput,
  windowBytes,
} from "../store/output/chunks.ts";
import { readResultPart } from "../store/output/result-parts.ts";

/** Output, and when it arrived (epoch ms). */
export type Arrived = Part & { at: number };

/** Reads the output that has arrived since the last call. */
export type OutputReader = () => AsyncGenerator<Arrived>;

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
