import { eq, sql } from "drizzle-orm";
import { type ExecutionRow, type SubmittedPayload, executionColumns } from "./row.ts";
import type { Database } from "../database.ts";
import { filesOf, type InputFileInfo } from "./input-files.ts";
import { position } from "./line.ts";
import { wholeOutput } from "../output/chunks.ts";
import { type ArtifactRow, listArtifacts } from "../output/artifacts.ts";
import { executions, payloads } from "../schema.ts";
import { listed, query, rowsQuery, statement } from "../statement.ts";

export type PayloadRow = typeof payloads.$inferSelect;

/** An execution with everything that its record shows. */
export interface FullExecution {
  execution: ExecutionRow;
  payload: Pick<PayloadRow, "stdin" | "args" | "stdout" | "stderr" | "output">;
  artifacts: ArtifactRow[];
  inputFiles: InputFileInfo[];
}

export async function findExecution(db: Database, id: string): Promise<ExecutionRow | undefined> {
  const [row] = await executionById(db, { id });
  return row;
}

const executionById = rowsQuery(
  executionColumns,
  query
    .select(executionColumns)
    .from(executions)
    .where(eq(executions.id, sql.placeholder("id"))),
);
const executionByLease = rowsQuery(
  executionColumns,
  query
    .select(executionColumns)
    .from(executions)
    .where(eq(executions.leaseId, sql.placeholder("leaseId"))),
);

export async function findByLease(
  db: Database,
  leaseId: string,
): Promise<ExecutionRow | undefined> {
  const [row] = await executionByLease(db, { leaseId });
  return row;
}

/** Position of an execution in the queue, 1 for the next; 0 if it is not queued. */
export async function queuePosition(db: Database, { id, status }: ExecutionRow): Promise<number> {
  if (status !== "queued") return 0;
  const { rows } = await db.client.execute(positionOf({ id, most: 10_000 }));
  return Number(rows[0]?.[0]);
}

const positionOf = statement(position);

/** Adds streams, output and artifacts to rows, in their order. */
export async function withPayloads(db: Database, rows: ExecutionRow[]): Promise<FullExecution[]> {
  if (rows.length === 0) return [];
  const ids = rows.map(({ id }) => id);
  const withInputs = rows.filter(({ inputs }) => inputs !== null);
  const [payloadRows, artifactRows, fileRows] = await Promise.all([
    outputs(db, { ids: JSON.stringify(ids) }),
    listArtifacts(db, ids),
    filesOf(
      db,
      withInputs.map(({ id }) => id),
    ),
  ]);
  return Promise.all(
    rows.map(async (execution) => ({
      execution,
      payload: await orLogged(
        db,
        execution,
        payloadRows.find((p) => p.executionId === execution.id),
      ),
      artifacts: artifactRows.filter((a) => a.executionId === execution.id),
      inputFiles: fileRows.filter((file) => file.executionId === execution.id),
    })),
  );
}

const outputColumns = {
  executionId: payloads.executionId,
  stdin: payloads.stdin,
  args: payloads.args,
  stdout: payloads.stdout,
  stderr: payloads.stderr,
  output: payloads.output,
};
const outputs = rowsQuery(
  outputColumns,
  query
    .select(outputColumns)
    .from(payloads)
    .where(sql`${payloads.executionId} in ${listed("ids")}`),
);

export async function withPayload(db: Database, row: ExecutionRow): Promise<FullExecution> {
  const [full] = await withPayloads(db, [row]);
  if (!full) throw new Error(`execution ${row.id} has no payload`);
  return full;
}

/** What the code of an execution is given, as it was submitted. */
export async function findSubmitted(
  db: Database,
  id: string,
): Promise<SubmittedPayload | undefined> {
  const [row] = await db.orm
    .select({
      code: payloads.code,
      input: payloads.input,
      stdin: payloads.stdin,
      args: payloads.args,
    })
    .from(payloads)
    .where(eq(payloads.executionId, id));
  return row;
}

type Streams = FullExecution["payload"];
const empty: Streams = { stdin: null, args: null, stdout: null, stderr: null, output: null };

/** The streams of the result; without one, the output that the last attempt had posted before its agent was lost. */
async function orLogged(
  db: Database,
  { id, attempt, leaseId, endedAt, resultHash }: ExecutionRow,
  payload: Streams = empty,
): Promise<Streams> {
  if (endedAt === null || resultHash !== null || leaseId === null) return payload;
  return { ...payload, ...(await wholeOutput(db, { executionId: id, attempt })), output: null };
}
