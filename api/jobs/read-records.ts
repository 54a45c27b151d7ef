import type { ExecutionRecord } from "../../shared/wire/execution.ts";
import type { ClientDeps } from "../deps.ts";
import { notFound } from "../errors.ts";
import { type AnyDb, ofTenant } from "../store/tenant.ts";
import type { ExecutionRow } from "../store/jobs/row.ts";
import type { StreamName } from "../../shared/wire/output.ts";
import {
  emptyPayload,
  findExecution,
  type FullExecution,
  withPayloads,
} from "../store/jobs/read.ts";
import { windowBytes } from "../store/output/chunks.ts";
import { readResultPart } from "../store/output/result-parts.ts";
import { withAttempts } from "./attempts.ts";
import { toRecord, type View } from "./record.ts";

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
    ? await withPayloads(db, rows, streamsAtOnceBytes)
    : rows.map((execution): FullExecution => ({
        execution,
        payload: emptyPayload,
        artifacts: [],
        inputFiles: [],
      }));
  const plain = full.map((one) => toRecord(one, "all"));
  const records = fields.includes("attempts") ? await withAttempts(db, plain) : plain;
  const wanted = new Set<string>(["execution_id", ...fields]);
  return records.map((record, at) =>
    withStreams(db, full[at]!, {
      ...Object.fromEntries(Object.entries(record).filter(([field]) => wanted.has(field))),
      ...ofTenant(db, rows[at]!),
    }),
  );
}

async function readWhole(db: AnyDb, rows: ExecutionRow[], view: View): Promise<ExecutionRecord[]> {
  const full = await withPayloads(db, rows, streamsAtOnceBytes);
  const plain = full.map((one) => ({ ...toRecord(one, view), ...ofTenant(db, one.execution) }));
  const records = view === "all" ? await withAttempts(db, plain) : plain;
  return records.map((record, at) => withStreams(db, full[at]!, record));
}

/** Larger streams are read in parts while their record is sent: a client may take long, and ask a hundred times. */
export const streamsAtOnceBytes = 256 * 1024;

/** Texts of an object's fields that are read while it is sent. */
export const longTexts = new WeakMap<
  object,
  Partial<Record<string, () => AsyncIterable<string>>>
>();

/** A record or result, whose streams are read while it is sent if they were left out. */
export function withStreams<T extends object>(
  db: AnyDb,
  { execution: { id }, left }: Pick<FullExecution, "execution" | "left">,
  record: T,
): T {
  if (!left) return record;
  longTexts.set(record, {
    stdout: () => readText(db, id, "stdout", left.stdout),
    stderr: () => readText(db, id, "stderr", left.stderr),
  });
  return record;
}

async function* readText(
  db: AnyDb,
  id: string,
  stream: StreamName,
  bytes: number,
): AsyncGenerator<string> {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  for (let offset = 0; offset < bytes;) {
    const part = await readResultPart(db, id, stream, { offset, length: windowBytes });
    if (part.length === 0) throw new Error(`execution ${id} was removed while it was read`);
    yield decoder.decode(part, { stream: true });
    offset += part.length;
  }
  yield decoder.decode();
}
