import { writeJson } from "../../shared/json.ts";
import type { ExecutionRecord } from "../../shared/wire/execution.ts";
import type { ClientDeps } from "../deps.ts";
import { limits } from "../../shared/wire/limits.ts";
import { notFound } from "../errors.ts";
import { type AnyDb, ofTenant } from "../store/tenant.ts";
import type { ExecutionRow } from "../store/jobs/row.ts";
import {
  emptyPayload,
  findExecution,
  type FullExecution,
  withPayloads,
} from "../store/jobs/read.ts";
import { windowBytes } from "../store/output/chunks.ts";
import { shownAfter } from "../store/output/items.ts";
import { type LongColumn, longColumns, readResultPart } from "../store/output/result-parts.ts";
import { withAttempts } from "./attempts.ts";
import { toRecord, toResultItem, type View } from "./record.ts";

/** @throws AppError 404 when it is unknown. `what` is its name in the message. */
export async function requireExecution(
  { db }: Pick<ClientDeps, "db">,
  id: string,
  what: "Job" | "Execution" = "Job",
): Promise<ExecutionRow> {
  const execution = await findExecution(db, id);
  if (!execution) throw notFound(`${what} ${id}`);
  return execution;
}

type Field = keyof ExecutionRecord;

/** Fields that are not in the row of an execution. */
const elsewhere: Field[] = [
  "stdin",
  "args",
  "language",
  "command",
  "compile_command",
  "compile_timeout",
  "tools",
  "tool_timeout",
  "compile",
  "results",
  "stdout",
  "stderr",
  "output",
  "artifacts",
  "input_artifacts",
];

/** The record of a row. */
export async function readRecord(
  db: AnyDb,
  row: ExecutionRow,
  view: View,
): Promise<ExecutionRecord> {
  const [record] = await readWhole(db, [row], view);
  return record!;
}

/** The records of rows; with `fields`, only these and the id. Reads payloads and attempts only if a field needs them. */
export async function readRecords(
  db: AnyDb,
  rows: ExecutionRow[],
  { view, fields }: { view?: View; fields?: Field[] | undefined },
): Promise<Partial<ExecutionRecord>[]> {
  if (!fields) return readWhole(db, rows, view);
  const full = elsewhere.some((field) => fields.includes(field))
    ? await withPayloads(db, rows, readAtOnceBytes)
    : rows.map((execution): FullExecution => ({
        execution,
        payload: emptyPayload,
        left: {},
        artifacts: [],
        inputFiles: [],
      }));
  const plain = full.map((one) => toRecord(one, "all"));
  const records = fields.includes("attempts") ? await withAttempts(db, plain) : plain;
  const wanted = new Set<string>(["execution_id", ...fields]);
  return records.map((record, at) =>
    withLongFields(db, full[at]!, {
      ...Object.fromEntries(Object.entries(record).filter(([field]) => wanted.has(field))),
      ...ofTenant(db, rows[at]!),
    }),
  );
}

async function readWhole(db: AnyDb, rows: ExecutionRow[], view: View): Promise<ExecutionRecord[]> {
  const full = await withPayloads(db, rows, readAtOnceBytes);
  const plain = full.map((one) => ({ ...toRecord(one, view), ...ofTenant(db, one.execution) }));
  const records = view === "all" ? await withAttempts(db, plain) : plain;
  return records.map((record, at) => withLongFields(db, full[at]!, record));
}

/** What is larger is read in parts while its record is sent: a client may take long, and ask a hundred times. */
export const readAtOnceBytes = 256 * 1024;
/** Bounds the parts in which a column is read, and how often: SQLite reads the whole column for each. */
const columnReads = { count: 16, mostBytes: 1024 * 1024 };

/** The JSON of a field that is read while it is sent. */
export interface LongField {
  read: () => AsyncIterable<string>;
  /** About as much of it is in memory. */
  bytesAtOnce: number;
}

/** The fields of objects that are read so. */
export const longFields = new WeakMap<object, Partial<Record<string, LongField>>>();

/** A record or result, whose large fields are read while it is sent if they were left out. */
export function withLongFields<T extends object>(
  db: AnyDb,
  { execution, left, items }: Pick<FullExecution, "execution" | "left" | "items">,
  record: T,
): T {
  const fields: Partial<Record<string, LongField>> = {};
  for (const name of longColumns) {
    const bytes = left[name];
    if (bytes !== undefined) fields[name] = longColumn(db, execution.id, name, bytes);
  }
  if (items === "left") {
    const read = () => readItems(db, execution);
    fields["results"] = { read, bytesAtOnce: limits.resultItemMaxBytes };
  }
  if (Object.keys(fields).length > 0) longFields.set(record, fields);
  return record;
}

function longColumn(db: AnyDb, id: string, column: LongColumn, bytes: number): LongField {
  const { count, mostBytes } = columnReads;
  const length = Math.min(Math.max(windowBytes, Math.ceil(bytes / count)), mostBytes);
  return { read: () => readColumn(db, id, column, { bytes, length }), bytesAtOnce: length };
}

async function* readColumn(
  db: AnyDb,
  id: string,
  column: LongColumn,
  { bytes, length }: { bytes: number; length: number },
): AsyncGenerator<string> {
  // `output` is JSON, which has no byte order mark.
  const isText = column !== "output";
  const decoder = new TextDecoder("utf-8", { ignoreBOM: isText });
  const toJson = (text: string): string => (isText ? JSON.stringify(text).slice(1, -1) : text);
  if (isText) yield '"';
  for (let offset = 0; offset < bytes;) {
    const part = await readResultPart(db, id, column, { offset, length });
    if (part.length === 0) throw wasRemoved(id);
    yield toJson(decoder.decode(part, { stream: true }));
    offset += part.length;
  }
  yield toJson(decoder.decode());
  if (isText) yield '"';
}

async function* readItems(db: AnyDb, { id, attempt }: ExecutionRow): AsyncGenerator<string> {
  let separator = "[";
  for (let number = 0; ;) {
    const rows = await shownAfter(db, { executionId: id, attempt, number });
    if (rows.length === 0) break;
    for (const row of rows) {
      yield separator + writeJson(toResultItem(row));
      separator = ",";
      number = row.number;
    }
  }
  if (separator === "[") throw wasRemoved(id);
  yield "]";
}

const wasRemoved = (id: string): Error =>
  new Error(`execution ${id} was removed while it was read`);
