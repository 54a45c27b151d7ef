import { and, eq, sql } from "drizzle-orm";
import { type ExecutionRow, executionColumns } from "./row.ts";
import { filesOf, type InputFileInfo } from "./input-files.ts";
import { position } from "./line.ts";
import { wholeOutput } from "../output/chunks.ts";
import { type ItemRow, listItems } from "../output/items.ts";
import { type LongColumn, longColumns } from "../output/result-parts.ts";
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
  /** Bytes of the columns that were left out because they have too many: result-parts.ts reads them. */
  left: Partial<Record<LongColumn, number>>;
  artifacts: ArtifactRow[];
  inputFiles: InputFileInfo[];
  /** Only of an ended execution that asked for results; "left" if they have too many bytes. */
  items?: ItemRow[] | "left" | undefined;
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

/** Adds payloads, items and artifacts to rows, in their order. A long column or items of more bytes than `most` are left. */
export async function withPayloads(
  db: AnyDb,
  rows: ExecutionRow[],
  most = Number.MAX_SAFE_INTEGER,
): Promise<FullExecution[]> {
  if (rows.length === 0) return [];
  const ids = rows.map(({ id }) => id);
  const showing = rows.filter(showsItems).map(({ id }) => id);
  const [payloadRows, artifactRows, fileRows, itemRows] = await Promise.all([
    outputs(db, { ids: JSON.stringify(ids), most }),
    listArtifacts(db, ids),
    filesOf(db, rows),
    listItems(db, showing, most),
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
        items: itemRows.get(execution.id) ?? [],
      }),
    })),
  );
}

const showsItems = ({ results, endedAt }: ExecutionRow): boolean =>
  results !== null && endedAt !== null;

const lengthOf = (name: LongColumn) => sql<number>`coalesce(length(${payloads[name]}), 0)`;
const ifSmall = (name: LongColumn) =>
  sql<Uint8Array | null>`iif(${lengthOf(name)} <= ${sql.placeholder("most")}, ${payloads[name]}, null)`.mapWith(
    payloads[name],
  );

const outputs = tenantRows((own) =>
  query
    .select({
      executionId: payloads.executionId,
      stdoutBytes: lengthOf("stdout"),
      stderrBytes: lengthOf("stderr"),
      outputBytes: lengthOf("output"),
      stdinBytes: lengthOf("stdin"),
      args: payloads.args,
      program: payloads.program,
      tools: payloads.tools,
      compile: payloads.compile,
      stdout: ifSmall("stdout"),
      stderr: ifSmall("stderr"),
      output: ifSmall("output"),
      stdin: ifSmall("stdin"),
    })
    .from(payloads)
    .where(and(sql`${payloads.executionId} in ${listed("ids")}`, own(payloads))),
);

export async function withPayload(
  db: AnyDb,
  row: ExecutionRow,
  most?: number,
): Promise<FullExecution> {
  const [full] = await withPayloads(db, [row], most);
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
  row: (Streams & Record<`${LongColumn}Bytes`, number>) | undefined,
): Promise<Pick<FullExecution, "payload" | "left">> {
  if (!row) return { payload: emptyPayload, left: {} };
  const isLeft = (name: LongColumn): boolean => row[name] === null && row[`${name}Bytes`] > 0;
  const left: FullExecution["left"] = {};
  for (const name of longColumns) if (isLeft(name)) left[name] = row[`${name}Bytes`];
  if (endedAt === null || resultHash !== null || leaseId === null) return { payload: row, left };
  const logged = await wholeOutput(db, { executionId: id, attempt });
  const { stdin } = left;
  return {
    payload: { ...row, ...logged, output: null },
    left: stdin === undefined ? {} : { stdin },
  };
}
