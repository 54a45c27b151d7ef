import { and, eq, sql } from "drizzle-orm";
import { type ExecutionRow, executionColumns } from "./row.ts";
import { filesOf, type InputFileInfo } from "./input-files.ts";
import { position } from "./line.ts";
import type { StreamName } from "../../../shared/wire/output.ts";
import { wholeOutput } from "../output/chunks.ts";
import { type ItemRow, listItems } from "../output/items.ts";
import { type ArtifactRow, listArtifacts } from "../output/artifacts.ts";
import { executions, payloads } from "../schema.ts";
import { positionOfCall } from "./call-place.ts";
import { listed, query } from "../statement.ts";
import { type AnyDb, perTenant, run, tenantRow, tenantRows } from "../tenant.ts";

export type PayloadRow = typeof payloads.$inferSelect;

/** An execution with everything that its record shows. */
export interface FullExecution {
  execution: ExecutionRow;
  payload: Pick<
    PayloadRow,
    "stdin" | "args" | "program" | "tools" | "stdout" | "stderr" | "output" | "compile"
  >;
  /** Bytes of its streams, if they were left out because they have too many together: result-parts.ts reads them. */
  left?: Record<StreamName, number> | undefined;
  artifacts: ArtifactRow[];
  inputFiles: InputFileInfo[];
  /** Only of an ended execution that asked for results. */
  items?: ItemRow[] | undefined;
}

const findBy = (column: typeof executions.id | typeof executions.leaseId) => {
  const find = tenantRow((own) =>
    query
      .select(executionColumns)
      .from(executions)
      .where(and(eq(column, sql.placeholder("value")), own(executions))),
  );
  return (db: AnyDb, value: string): Promise<ExecutionRow | undefined> => find(db, { value });
};
export const findExecution = findBy(executions.id);
export const findByLease = findBy(executions.leaseId);

/** Position of an execution in the queue, of a call in that of its session: 1 for the next; 0 if it is not queued. */
export async function queuePosition(
  db: AnyDb,
  { id, status, sessionId }: ExecutionRow,
): Promise<number> {
  if (status !== "queued") return 0;
  const asked = sessionId === null ? positionOf({ id, most: 10_000 }) : callPosition({ id });
  const { rows } = await run(db, asked);
  return Number(rows[0]?.[0]);
}

const positionOf = perTenant(position);
const callPosition = perTenant(positionOfCall);

/** Adds streams of at most `mostStreamBytes`, output and artifacts to rows, in their order. */
export async function withPayloads(
  db: AnyDb,
  rows: ExecutionRow[],
  mostStreamBytes = Number.MAX_SAFE_INTEGER,
): Promise<FullExecution[]> {
  if (rows.length === 0) return [];
  const ids = rows.map(({ id }) => id);
  const showing = rows.filter(showsItems).map(({ id }) => id);
  const [payloadRows, artifactRows, fileRows, itemRows] = await Promise.all([
    outputs(db, { ids: JSON.stringify(ids), most: mostStreamBytes }),
    listArtifacts(db, ids),
    filesOf(db, rows),
    listItems(db, showing),
  ]);
  return Promise.all(
    rows.map(async (execution) => ({
      execution,
      ...(await orLogged(
        db,
        execution,
        payloadRows.find((p) => p.executionId === execution.id),
      )),
      artifacts: artifactRows.filter((a) => a.executionId === execution.id),
      inputFiles: fileRows.filter((file) => file.executionId === execution.id),
      ...(showsItems(execution) && {
        items: itemRows.filter((item) => item.executionId === execution.id),
      }),
    })),
  );
}

const showsItems = ({ results, endedAt }: ExecutionRow): boolean =>
  results !== null && endedAt !== null;

const lengthOf = (name: StreamName) => sql<number>`coalesce(length(${payloads[name]}), 0)`;
const isSmall = sql`${lengthOf("stdout")} + ${lengthOf("stderr")} <= ${sql.placeholder("most")}`;
const ifSmall = (name: StreamName) =>
  sql<Uint8Array | null>`iif(${isSmall}, ${payloads[name]}, null)`.mapWith(payloads[name]);

const outputs = tenantRows((own) =>
  query
    .select({
      isSmall: sql<number>`${isSmall}`,
      stdoutBytes: lengthOf("stdout"),
      stderrBytes: lengthOf("stderr"),
      executionId: payloads.executionId,
      stdin: payloads.stdin,
      args: payloads.args,
      program: payloads.program,
      tools: payloads.tools,
      compile: payloads.compile,
      stdout: ifSmall("stdout"),
      stderr: ifSmall("stderr"),
      output: payloads.output,
    })
    .from(payloads)
    .where(and(sql`${payloads.executionId} in ${listed("ids")}`, own(payloads))),
);

export async function withPayload(
  db: AnyDb,
  row: ExecutionRow,
  mostStreamBytes?: number,
): Promise<FullExecution> {
  const [full] = await withPayloads(db, [row], mostStreamBytes);
  if (!full) throw new Error(`execution ${row.id} has no payload`);
  return full;
}

type Streams = FullExecution["payload"];
/** That of a job that was given nothing and has no result. */
export const emptyPayload: Streams = {
  stdin: null,
  args: null,
  program: null,
  tools: null,
  stdout: null,
  stderr: null,
  output: null,
  compile: null,
};

/** The streams of the result; without one, the output that the last attempt had posted before its agent was lost. */
async function orLogged(
  db: AnyDb,
  { id, attempt, leaseId, endedAt, resultHash }: ExecutionRow,
  row: (Streams & { isSmall: number; stdoutBytes: number; stderrBytes: number }) | undefined,
): Promise<Pick<FullExecution, "payload" | "left">> {
  const payload = row ?? emptyPayload;
  if (endedAt === null || resultHash !== null || leaseId === null) {
    const isWhole = !row || row.isSmall === 1;
    return isWhole
      ? { payload }
      : { payload, left: { stdout: row.stdoutBytes, stderr: row.stderrBytes } };
  }
  const logged = await wholeOutput(db, { executionId: id, attempt });
  return { payload: { ...payload, ...logged, output: null } };
}
