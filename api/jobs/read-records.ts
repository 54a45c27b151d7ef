import type { ExecutionRecord } from "../../shared/wire/execution.ts";
import type { ClientDeps } from "../deps.ts";
import { notFound } from "../errors.ts";
import { type AnyDb, ofTenant } from "../store/tenant.ts";
import type { ExecutionRow } from "../store/jobs/row.ts";
import { emptyPayload, findExecution, withPayloads } from "../store/jobs/read.ts";
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
    ? await withPayloads(db, rows)
    : rows.map((execution) => ({
        execution,
        payload: emptyPayload,
        artifacts: [],
        inputFiles: [],
      }));
  const plain = full.map((one) => toRecord(one, "all"));
  const records = fields.includes("attempts") ? await withAttempts(db, plain) : plain;
  const wanted = new Set<string>(["execution_id", ...fields]);
  return records.map((record, at) => ({
    ...Object.fromEntries(Object.entries(record).filter(([field]) => wanted.has(field))),
    ...ofTenant(db, rows[at]!),
  }));
}

async function readWhole(db: AnyDb, rows: ExecutionRow[], view: View): Promise<ExecutionRecord[]> {
  const records = (await withPayloads(db, rows)).map((full) => ({
    ...toRecord(full, view),
    ...ofTenant(db, full.execution),
  }));
  return view === "all" ? withAttempts(db, records) : records;
}
