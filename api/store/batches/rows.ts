import { sql, type SQL } from "drizzle-orm";
import type { Values } from "../statement.ts";
import { type NewExecution, submittedBytes } from "../jobs/submit.ts";

/** A submission of a batch, with its position in the request. */
export interface BatchItem {
  n: number;
  execution: NewExecution;
  /** It must not be accepted now, but may have been before. */
  isBlocked: boolean;
}

/** Columns that take the value of the field with their name. */
export const columns = [
  "job_type",
  "timeout_s",
  "startup_timeout_s",
  "requirements",
  "available_at",
  "code_hash",
  "input_hash",
  "code_bytes",
  "input_bytes",
  "submitted_bytes",
  "metadata",
  "run_at",
  "start_by",
  "inputs",
  "results",
  "callback_url",
] as const;
const fields = [
  "n",
  "blocked",
  "id",
  "key",
  "hash",
  "priority",
  "max_attempts",
  ...columns,
] as const;
type Field = (typeof fields)[number];
type Row = Record<Field, string | number | null>;

function toRow({ n, isBlocked, execution: e }: BatchItem): Row {
  return {
    n,
    blocked: Number(isBlocked),
    id: e.id,
    key: e.idempotencyKey ?? null,
    hash: e.submissionHash,
    priority: e.priority ?? 0,
    max_attempts: e.maxAttempts ?? null,
    job_type: e.jobType,
    timeout_s: e.timeoutS,
    startup_timeout_s: e.startupTimeoutS,
    requirements: JSON.stringify(e.requirements),
    available_at: e.availableAt,
    code_hash: e.codeHash,
    input_hash: e.inputHash,
    code_bytes: e.codeBytes,
    input_bytes: e.inputBytes,
    submitted_bytes: submittedBytes(e),
    metadata: e.metadata ? JSON.stringify(e.metadata) : null,
    run_at: e.runAt ?? null,
    start_by: e.startBy ?? null,
    inputs: e.inputs ?? null,
    results: e.results ?? null,
    callback_url: e.callbackUrl ?? null,
  };
}

/**
 * The items of a batch as values of a statement. Reading a field from JSON takes half of a statement's
 * time. So only fields in which the items differ are in the JSON; the others are single values.
 */
export function rowsOf(items: BatchItem[]): { varying: Field[]; values: Values } {
  const rows = items.map(toRow);
  const varying = fields.filter((name) => rows.some((row) => row[name] !== rows[0]?.[name]));
  const values: Values = {};
  for (const name of fields) values[`common.${name}`] = rows[0]?.[name] ?? null;
  values["items"] = JSON.stringify(rows.map((row) => varying.map((name) => row[name])));
  return { varying, values };
}

/** The table `items` with these fields, for a `with` clause. */
export function itemsTable(varying: Field[], wanted: readonly Field[] = fields): SQL {
  const selected = wanted.map((name) => {
    const position = varying.indexOf(name);
    const value =
      position < 0
        ? sql`${sql.placeholder(`common.${name}`)}`
        : sql`value ->> ${sql.raw(String(position))}`;
    return sql`${value} as ${sql.raw(name)}`;
  });
  return sql`items as materialized (
    select ${sql.join(selected, sql`, `)} from json_each(${sql.placeholder("items")}))`;
}
