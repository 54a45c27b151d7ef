import type { ExecutionRecord } from "../../shared/wire/execution.ts";
import type { Database } from "../store/database.ts";
import type { ExecutionRow } from "../store/jobs/advance.ts";
import { withPayloads } from "../store/jobs/read.ts";
import { toRecord, type View } from "./record.ts";

type Field = keyof ExecutionRecord;

/** Fields that are not in the row of an execution. */
const elsewhere: Field[] = [
  "stdin",
  "args",
  "stdout",
  "stderr",
  "output",
  "artifacts",
  "input_artifacts",
];

/** The records of rows; with `fields`, only these and the id. Reads payloads only if a field needs them. */
export async function readRecords(
  db: Database,
  rows: ExecutionRow[],
  { view, fields }: { view?: View; fields?: Field[] | undefined },
): Promise<Partial<ExecutionRecord>[]> {
  if (!fields) return (await withPayloads(db, rows)).map((full) => toRecord(full, view));
  const full = elsewhere.some((field) => fields.includes(field))
    ? await withPayloads(db, rows)
    : rows.map((execution) => ({ execution, payload: nothing, artifacts: [], inputFiles: [] }));
  const wanted = new Set<string>(["execution_id", ...fields]);
  return full.map((one) =>
    Object.fromEntries(Object.entries(toRecord(one, "all")).filter(([field]) => wanted.has(field))),
  );
}

const nothing = { stdin: null, args: null, stdout: null, stderr: null, output: null };
