import type { ResultSet } from "@libsql/client/web";
import {
  and,
  asc,
  eq,
  exists,
  getTableColumns,
  gt,
  lte,
  type Placeholder,
  sql,
  type SQL,
} from "drizzle-orm";
import { concatBytes } from "../../shared/bytes.ts";
import { type StreamName, streamNames } from "../../shared/wire/executions.ts";
import type { RunItem } from "../../shared/wire/leases.ts";
import { type Database, insertWhere, transact } from "../store/database.ts";
import {
  artifacts,
  executions,
  isRunning,
  outputChunks,
  payloads,
  runItems,
} from "../store/schema.ts";
import { type Filled, given, listed, query, statement } from "../store/statement.ts";
import { type AnyDb, type Owner, tenantRow, tenantRows } from "../store/tenant.ts";

export type ArtifactRow = typeof artifacts.$inferSelect;

/**
 * `recorded` also stands for a repeated post, `conflict` for a post with other content in the same
 * place, and `too_large` for a post above the limit of its lease.
 */
export type Recorded = "recorded" | "conflict" | "too_large" | "lease_lost";

/** Records an uploaded file if its lease still holds and has room for it. */
export async function recordArtifact(
  db: Database,
  artifact: ArtifactRow,
  maxBytes: number,
  now: number,
): Promise<Recorded> {
  const holds = leaseHolds(artifact.leaseId, now);
  const hasRoom = lte(sql`${uploadedBytes(db, artifact)} + ${artifact.sizeBytes}`, maxBytes);
  const [, present, held] = await transact(db, [
    insertWhere(artifacts, artifact, and(holds, hasRoom)).append(onRepeat),
    db.orm
      .select({ isSame: eq(artifacts.sha256, artifact.sha256) })
      .from(artifacts)
      .where(uploadOf(artifact)),
    sql`select ${holds}`,
  ]);
  return recorded(present, held);
}

/** Bytes of the files that a lease has uploaded. */
function uploadedBytes(db: Database, { executionId, leaseId }: Omit<Upload, "name">) {
  return db.orm
    .select({ bytes: sql<number>`coalesce(sum(${artifacts.sizeBytes}), 0)` })
    .from(artifacts)
    .where(and(eq(artifacts.executionId, executionId), eq(artifacts.leaseId, leaseId)));
}

/** Whether a lease has room for a file; checked before its bytes are read. */
export async function hasRoom(
  db: Database,
  lease: Omit<Upload, "name">,
  sizeBytes: number,
  maxBytes: number,
): Promise<boolean> {
  const [uploaded] = await uploadedBytes(db, lease);
  return (uploaded?.bytes ?? 0) + sizeBytes <= maxBytes;
}

type Upload = Pick<ArtifactRow, "executionId" | "leaseId" | "name">;

export async function findUpload(db: Database, upload: Upload): Promise<ArtifactRow | undefined> {
  const [row] = await db.orm.select().from(artifacts).where(uploadOf(upload));
  return row;
}

function uploadOf({ executionId, leaseId, name }: Upload): SQL | undefined {
  return and(
    eq(artifacts.executionId, executionId),
    eq(artifacts.leaseId, leaseId),
    eq(artifacts.name, name),
  );
}

const onRepeat = sql` on conflict do nothing`;

/** @param held Whether the lease still holds; given if its posts have a limit. */
export function recorded(present: ResultSet | undefined, held?: ResultSet): Recorded {
  const row = present?.rows[0];
  if (!row) return held?.rows[0]?.[0] === 1 ? "too_large" : "lease_lost";
  return row[0] === 1 ? "recorded" : "conflict";
}

/** Whether the lease of a running execution holds. */
function leaseHolds(leaseId: string | Placeholder, now: number | Placeholder) {
  return exists(
    query
      .select({ id: executions.id })
      .from(executions)
      .where(and(eq(executions.leaseId, leaseId), isRunning, gt(executions.leaseExpiresAt, now))),
  );
}

/** The artifacts of executions, by name. */
export async function listArtifacts(db: AnyDb, ids: string[]): Promise<ArtifactRow[]> {
  return visibleArtifacts(db, { ids: JSON.stringify(ids) });
}

const visibleArtifacts = tenantRows((own) =>
  query
    .select()
    .from(artifacts)
    .where(visible(own, sql`${artifacts.executionId} in ${listed("ids")}`))
    .orderBy(asc(artifacts.name)),
);

/** An artifact of an execution, by its name. */
export const findArtifact = tenantRow((own) =>
  query
    .select()
    .from(artifacts)
    .where(
      visible(
        own,
        and(eq(artifacts.executionId, given("executionId")), eq(artifacts.name, given("name"))),
      ),
    ),
);

/** Only the artifacts of an accepted result are shown, not those of a lost lease. */
function visible(own: Owner, match: SQL | undefined): SQL | undefined {
  return and(
    match,
    own(artifacts),
    sql`exists (select 1 from ${executions} where ${executions.id} = ${artifacts.executionId} and ${own(executions)}
      and ${executions.leaseId} = ${artifacts.leaseId} and ${executions.resultHash} is not null)`,
  );
}

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

const ofAttempt = and(
  eq(outputChunks.executionId, given("executionId")),
  eq(outputChunks.attempt, given("attempt")),
);
const ofOwnAttempt = (own: Owner) => and(ofAttempt, own(outputChunks));
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
    .where(ofOwnAttempt(own))
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
        ofOwnAttempt(own),
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

const rowsFrom = tenantRows((own) =>
  query
    .select({ position, stdoutOffset, stderrOffset, runs, at, data })
    .from(outputChunks)
    .where(
      and(
        ofOwnAttempt(own),
        sql`${position} >= ${given("from")}`,
        sql`${position} < ${given("from")} + ${windowBytes}`,
      ),
    )
    .orderBy(asc(position)),
);

/** The rows that begin in the window at `from`, in the order in which the code wrote them, and where the next one begins. */
export async function readOutput(db: AnyDb, attempt: Attempt, from: number) {
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

const item = sql`each.value`;
/** Inserts items, given as JSON, for the execution that meets a condition. What is there already stays. */
const insertFor = (condition: SQL) =>
  statement(sql`
    insert into ${runItems} (execution_id, attempt, number, kind, main, data, stdout_at, stderr_at, at)
    select ${executions.id}, ${executions.attempt}, ${item} ->> 'number', ${item} ->> 'kind',
      ${item} ->> 'main', ${item} -> 'data', ${item} ->> 'stdout_at', ${item} ->> 'stderr_at', ${given("now")}
    from ${executions}, json_each(${given("items")}) as each
    where ${executions.leaseId} = ${given("leaseId")} and ${condition}
    on conflict do nothing`);

/** Items as the statements read them. */
function asRows(items: RunItem[]): string {
  return JSON.stringify(
    items.map((each) => {
      if ("data" in each) return { kind: "display", ...each };
      const { name, arguments: given, ...place } = each;
      return { kind: "tool_call", main: false, data: { name, arguments: given }, ...place };
    }),
  );
}

const insertHeld = insertFor(holds);
const countSame = statement(
  sql`select count(*) from json_each(${given("items")}) as each join ${runItems}
    on ${runItems.executionId} = ${given("executionId")} and ${runItems.attempt} = ${given("attempt")}
      and ${runItems.number} = ${item} ->> 'number' where ${runItems.kind} = ${item} ->> 'kind'
      and ${runItems.data} = ${item} -> 'data'`,
);

/** Stores items of a running execution, if its lease still holds. */
export async function recordItems(
  db: Database,
  { executionId, attempt, leaseId }: Attempt & { leaseId: string },
  items: RunItem[],
  now: number,
): Promise<Recorded> {
  const values = { executionId, attempt, items: asRows(items) };
  const [, same, held] = await transact(db, [
    insertHeld({ items: values.items, leaseId, now }),
    countSame(values),
    isLeaseHeld({ leaseId, now }),
  ]);
  if (same?.rows[0]?.[0] === items.length) return "recorded";
  return held?.rows[0]?.[0] === 1 ? "conflict" : "lease_lost";
}

/** Stores the items of the result that has ended an execution, in its transaction. */
const insertLast = insertFor(sql`${executions.resultHash} = ${given("hash")}`);
export function keepItems(
  items: RunItem[],
  result: { leaseId: string; hash: string; now: number },
): Filled {
  return insertLast({ ...result, items: asRows(items) });
}

export type ItemRow = typeof runItems.$inferSelect;

const shownBy = (own: Owner) =>
  and(
    sql`${runItems.executionId} in ${listed("ids")}`,
    eq(runItems.kind, "display"),
    own(runItems),
    sql`exists (select 1 from ${executions} where ${executions.id} = ${runItems.executionId}
      and ${executions.attempt} = ${runItems.attempt} and ${own(executions)})`,
  );
const shown = tenantRows((own) =>
  query.select().from(runItems).where(shownBy(own)).orderBy(asc(runItems.number)),
);
const shownBytes = tenantRows((own) =>
  query
    .select({
      id: runItems.executionId,
      bytes: sql<number>`sum(octet_length(${runItems.data}))`,
    })
    .from(runItems)
    .where(shownBy(own))
    .groupBy(runItems.executionId),
);

/** What the last attempt of executions has shown; "left" where it has more bytes than `most`. */
export async function listItems(
  db: AnyDb,
  ids: string[],
  most: number,
): Promise<Map<string, ItemRow[] | "left">> {
  if (ids.length === 0) return new Map();
  const sizes = await shownBytes(db, { ids: JSON.stringify(ids) });
  const small = sizes.filter(({ bytes }) => bytes <= most).map(({ id }) => id);
  const rows = small.length === 0 ? [] : await shown(db, { ids: JSON.stringify(small) });
  return new Map(
    sizes.map(({ id, bytes }) => [
      id,
      bytes <= most ? rows.filter((row) => row.executionId === id) : "left",
    ]),
  );
}

/** Reads the items of an attempt after a number: the next few that meet the condition. */
export const itemsOf = (condition?: (own: Owner) => SQL | undefined, most = 4) =>
  tenantRows((own) =>
    query
      .select()
      .from(runItems)
      .where(
        and(
          eq(runItems.executionId, given("executionId")),
          eq(runItems.attempt, given("attempt")),
          gt(runItems.number, given("number")),
          condition?.(own),
          own(runItems),
        ),
      )
      .orderBy(asc(runItems.number))
      .limit(most),
  );
const after = itemsOf();
/** Reads the next item that an attempt has shown after a number. Only one, because a reader may keep it in memory for long. */
export const shownAfter = itemsOf(() => eq(runItems.kind, "display"), 1);
const afterWithoutResult = itemsOf(
  (own) => sql`exists (select 1 from ${executions} where ${executions.id} = ${runItems.executionId}
    and ${executions.resultHash} is null and ${own(executions)})`,
);

/** Reads the next few items of an attempt after a number; with `withoutResult`, none once a result is stored. */
export async function itemsAfter(
  db: AnyDb,
  { executionId, attempt }: Attempt,
  number: number,
  withoutResult: boolean,
): Promise<ItemRow[]> {
  const read = withoutResult ? afterWithoutResult : after;
  return read(db, { executionId, attempt, number });
}

const ofExecution = (own: Owner) => and(eq(payloads.executionId, given("id")), own(payloads));

/** Columns that are read in parts. */
export const longColumns = ["stdout", "stderr", "output", "stdin"] as const;
export type LongColumn = (typeof longColumns)[number];

const sliceOf = (name: LongColumn) => {
  const column = payloads[name];
  const slice = sql`substr(${column}, ${given("offset")} + 1, ${given("length")})`;
  return tenantRow((own) =>
    query
      .select({ bytes: slice.mapWith(column) })
      .from(payloads)
      .where(ofExecution(own)),
  );
};
const slices = Object.fromEntries(longColumns.map((name) => [name, sliceOf(name)])) as Record<
  LongColumn,
  ReturnType<typeof sliceOf>
>;

/** A part of a column; empty at its end. */
export async function readResultPart(
  db: AnyDb,
  id: string,
  column: LongColumn,
  { offset, length }: { offset: number; length: number },
): Promise<Uint8Array> {
  const row = await slices[column](db, { id, offset, length });
  return row?.bytes ?? new Uint8Array();
}

const lengths = tenantRow((own) =>
  query
    .select({
      stdout: sql<number>`coalesce(length(${payloads.stdout}), 0)`,
      stderr: sql<number>`coalesce(length(${payloads.stderr}), 0)`,
    })
    .from(payloads)
    .where(ofExecution(own)),
);

/** Bytes of each stream of a result. */
export async function resultLengths(db: AnyDb, id: string): Promise<Record<StreamName, number>> {
  return (await lengths(db, { id })) ?? { stdout: 0, stderr: 0 };
}

const smallOutput = tenantRow((own) =>
  query
    .select({
      output:
        sql`iif(length(${payloads.output}) <= ${given("most")}, ${payloads.output}, null)`.mapWith(
          payloads.output,
        ),
      isThere: sql<number>`${payloads.output} is not null`,
    })
    .from(payloads)
    .where(ofExecution(own)),
);

/** The output of a result; `large` if it has more than `most` bytes. */
export async function readSmallOutput(
  db: AnyDb,
  id: string,
  most: number,
): Promise<Uint8Array | "large" | null> {
  const row = await smallOutput(db, { id, most });
  return row?.output ?? (row?.isThere === 1 ? "large" : null);
}
