import { and, asc, eq, getTableColumns, sql } from "drizzle-orm";
import { concatBytes } from "../../../shared/bytes.ts";
import { streamNames, type StreamName } from "../../../shared/wire/output.ts";
import { transact, insertWhere, type Database } from "../database.ts";
import { outputChunks } from "../schema.ts";
import { query, statement } from "../statement.ts";
import { type AnyDb, type Owner, tenantRow, tenantRows } from "../tenant.ts";
import { leaseHolds, type Recorded } from "./artifacts.ts";

/** Consecutive bytes of one stream. */
export interface Part {
  stream: StreamName;
  /** Bytes of this stream before the part. */
  offset: number;
  data: Uint8Array;
}

export type Offsets = Record<StreamName, number>;

/** One attempt of an execution. */
export interface Attempt {
  executionId: string;
  attempt: number;
}

/** Bounds the memory of a reader: about one row and one window of rows. */
const rowBytes = 32 * 1024;
export const windowBytes = 32 * 1024;

/**
 * Stores output of a running execution behind what is stored, if its lease still holds and the limit of
 * each stream has room for it.
 */
export async function recordOutput(
  db: Database,
  { leaseId, ...attempt }: Attempt & { leaseId: string },
  parts: Part[],
  maxBytes: number,
  now: number,
): Promise<Recorded> {
  for (;;) {
    const ends = await outputEnds(db, attempt);
    const isNext = streamNames.every((name) => {
      const first = parts.find(({ stream }) => stream === name);
      return first === undefined || first.offset === ends[name];
    });
    const rows = toRows(attempt, ends, parts, now);
    const isTooLarge = streamNames.some((name) => ends[name] + bytesOf(parts, name) > maxBytes);
    const inserts =
      isNext && !isTooLarge ? rows.map((row) => insertRow({ ...row, leaseId, now })) : [];
    const results = await transact(db, [...inserts, isLeaseHeld({ leaseId, now })]);
    const isHeld = results.at(-1)?.rows[0]?.[0] === 1;
    // The repeat of a stored post gets the same answer, even after the lease is gone.
    if (!isHeld || !isNext) {
      if (await isStored(db, attempt, parts)) return "recorded";
      return isHeld ? "conflict" : "lease_lost";
    }
    if (isTooLarge) return "too_large";
    // Otherwise another post has stored output meanwhile, maybe the same.
    if (results[0]?.rowsAffected === 1) return "recorded";
  }
}

function bytesOf(parts: Part[], name: StreamName): number {
  return parts.reduce((sum, { stream, data }) => sum + (stream === name ? data.length : 0), 0);
}

function toRows(attempt: Attempt, from: Offsets, parts: Part[], at: number) {
  const ends = { ...from };
  const rows: (typeof outputChunks.$inferInsert)[] = [];
  let runs: number[] = [];
  let pieces: Uint8Array[] = [];
  let begin = { ...ends };
  const close = (): void => {
    if (pieces.length === 0) return;
    const { stdout, stderr } = begin;
    const offsets = { position: stdout + stderr, stdoutOffset: stdout, stderrOffset: stderr };
    rows.push({ ...attempt, ...offsets, runs, at, data: concatBytes(pieces) });
    [runs, pieces, begin] = [[], [], { ...ends }];
  };
  let room = rowBytes;
  for (const { stream, data } of parts) {
    for (let done = 0; done < data.length;) {
      const piece = data.subarray(done, done + room);
      pieces.push(piece);
      runs.push(stream === "stdout" ? piece.length : -piece.length);
      ends[stream] += piece.length;
      done += piece.length;
      room -= piece.length;
      if (room > 0) continue;
      close();
      room = rowBytes;
    }
  }
  close();
  return rows;
}

const given = sql.placeholder;
const ofAttempt = and(
  eq(outputChunks.executionId, given("executionId")),
  eq(outputChunks.attempt, given("attempt")),
);
const seen = (own: Owner) => and(ofAttempt, own(outputChunks));
const { position, stdoutOffset, stderrOffset, runs, at, data } = outputChunks;

/** Where the stored output of the attempt ends, in bytes of both streams. */
const end = sql`coalesce((select ${position} + length(${data}) from ${outputChunks}
  where ${ofAttempt} order by ${position} desc limit 1), 0)`;
const holds = leaseHolds(given("leaseId"), given("now"));
const isLeaseHeld = statement(sql`select ${holds}`);
const columns = Object.keys(getTableColumns(outputChunks)).map((name) => [name, given(name)]);
const insertRow = statement(
  insertWhere(
    outputChunks,
    Object.fromEntries(columns) as never,
    and(holds, sql`${end} = ${given("position")}`),
  ),
);

const lastRow = tenantRow((own) =>
  query
    .select({ stdoutOffset, stderrOffset, runs })
    .from(outputChunks)
    .where(seen(own))
    .orderBy(sql`${position} desc`)
    .limit(1),
);

/** Bytes of each stream of an attempt that are stored. */
export async function outputEnds(db: AnyDb, attempt: Attempt): Promise<Offsets> {
  const last = await lastRow(db, { ...attempt });
  if (!last) return { stdout: 0, stderr: 0 };
  const ends = { stdout: last.stdoutOffset, stderr: last.stderrOffset };
  for (const run of last.runs) ends[run > 0 ? "stdout" : "stderr"] += Math.abs(run);
  return ends;
}

/** The last row that begins at or before both offsets. */
const rowBefore = tenantRow((own) =>
  query
    .select({ position })
    .from(outputChunks)
    .where(
      and(
        seen(own),
        sql`${stdoutOffset} <= ${given("stdout")}`,
        sql`${stderrOffset} <= ${given("stderr")}`,
      ),
    )
    .orderBy(sql`${position} desc`)
    .limit(1),
);

/** Position of the first row that has output after these offsets. */
export async function findOutput(db: AnyDb, attempt: Attempt, from: Offsets): Promise<number> {
  const row = await rowBefore(db, { ...attempt, ...from });
  return row?.position ?? 0;
}

/** A stored row of output, and where the next one begins. */
export interface OutputRow {
  parts: Part[];
  at: number;
  next: number;
}

const rowsFrom = tenantRows((own) =>
  query
    .select({ position, stdoutOffset, stderrOffset, runs, at, data })
    .from(outputChunks)
    .where(
      and(
        seen(own),
        sql`${position} >= ${given("from")}`,
        sql`${position} < ${given("from")} + ${windowBytes}`,
      ),
    )
    .orderBy(asc(position)),
);

/** The rows that begin in the window at `from`, in the order in which the code wrote them. */
export async function readOutput(db: AnyDb, attempt: Attempt, from: number): Promise<OutputRow[]> {
  const rows = await rowsFrom(db, { ...attempt, from });
  return rows.map((row) => {
    const ends = { stdout: row.stdoutOffset, stderr: row.stderrOffset };
    let begin = 0;
    const parts = row.runs.map((run): Part => {
      const stream = run > 0 ? "stdout" : "stderr";
      const bytes = row.data.subarray(begin, begin + Math.abs(run));
      const part = { stream, offset: ends[stream], data: bytes } as const;
      begin += bytes.length;
      ends[stream] += bytes.length;
      return part;
    });
    return { parts, at: row.at, next: row.position + row.data.length };
  });
}

/** All stored output of an attempt. */
export async function wholeOutput(
  db: AnyDb,
  attempt: Attempt,
): Promise<Record<StreamName, Uint8Array>> {
  const parts: Part[] = [];
  for (let from = 0; ;) {
    const rows = await readOutput(db, attempt, from);
    const last = rows.at(-1);
    if (!last) break;
    from = last.next;
    for (const row of rows) parts.push(...row.parts);
  }
  const joined = (name: StreamName) =>
    concatBytes(parts.filter(({ stream }) => stream === name).map((part) => part.data));
  return { stdout: joined("stdout"), stderr: joined("stderr") };
}

/** Whether exactly these parts are stored: then their post is a repeat. */
async function isStored(db: Database, attempt: Attempt, parts: Part[]): Promise<boolean> {
  const anywhere = Number.MAX_SAFE_INTEGER;
  const begin = { stdout: anywhere, stderr: anywhere };
  const end = { stdout: 0, stderr: 0 };
  for (const { stream, offset, data: bytes } of parts) {
    begin[stream] = Math.min(begin[stream], offset);
    end[stream] = Math.max(end[stream], offset + bytes.length);
  }
  const firstRow = await findOutput(db, attempt, begin);
  const stored = await storedParts(db, attempt, firstRow, end);
  return parts.every(({ stream, offset, data: bytes }) => {
    const matching = stored
      .filter((part) => part.stream === stream)
      .reduce((sum, part) => sum + equalBytes(part, offset, bytes), 0);
    return matching === bytes.length;
  });
}

/** Stored output from a row on, until both streams have reached these offsets. */
async function storedParts(
  db: Database,
  attempt: Attempt,
  firstRow: number,
  until: Offsets,
): Promise<Part[]> {
  const parts: Part[] = [];
  const reached = { stdout: 0, stderr: 0 };
  for (let from = firstRow; ;) {
    const rows = await readOutput(db, attempt, from);
    const last = rows.at(-1);
    if (!last) return parts;
    for (const part of rows.flatMap((row) => row.parts)) {
      reached[part.stream] = part.offset + part.data.length;
      parts.push(part);
    }
    if (streamNames.every((name) => reached[name] >= until[name])) return parts;
    from = last.next;
  }
}

/** Counts the bytes at an offset that equal a stored part's bytes at the same places. */
function equalBytes({ offset: begin, data: stored }: Part, offset: number, bytes: Uint8Array) {
  let equal = 0;
  const last = Math.min(begin + stored.length, offset + bytes.length);
  for (let at = Math.max(begin, offset); at < last; at++) {
    if (stored[at - begin] === bytes[at - offset]) equal++;
  }
  return equal;
}
