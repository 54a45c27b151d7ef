import { and, eq, sql } from "drizzle-orm";
import type { ResultReport } from "../../../shared/wire/agent/lease.ts";
import { advance, type Advanced } from "./advance.ts";
import type { ExecutionRow } from "./row.ts";
import type { Database } from "../database.ts";
import { bytesOf } from "./row.ts";
import { executions, outputChunks, payloads } from "../schema.ts";
import { keepItems } from "../output/items.ts";
import { query, statement } from "../statement.ts";

/** A result as the store keeps it: streams as bytes, and the hash of its post. */
export interface Result extends Omit<ResultReport, "stdout_base64" | "stderr_base64"> {
  stdout: Uint8Array;
  stderr: Uint8Array;
  output: Uint8Array | null;
  hash: string;
}

/** Ends an execution with the result of its lease. Writes record and payload in one transaction. */
export async function finishExecution(
  db: Database,
  leaseId: string,
  result: Result,
  now: number,
  read?: ExecutionRow,
): Promise<Advanced> {
  const { items } = result;
  return advance(
    db,
    { leaseId },
    {
      kind: "complete",
      leaseId,
      status: result.status,
      error: result.error,
      exitCode: result.exit_code,
    },
    now,
    {
      columns: {
        resultHash: result.hash,
        // A job whose code never started keeps the reference from its claim.
        ...(result.job_ref !== null && { jobRef: result.job_ref }),
        containerRuntime: result.container_runtime,
        containerBackend: result.container_backend ?? null,
        timing: result.timing,
        maxRssMb: result.resource_usage?.max_rss_mb ?? null,
        cpuTimeMs: result.resource_usage?.cpu_time_ms ?? null,
        wallTimeMs: result.resource_usage?.wall_time_ms ?? null,
        stdoutTruncated: result.stdout_truncated,
        stderrTruncated: result.stderr_truncated,
        ...(result.results_truncated && { results: "truncated" as const }),
        outputBytes: bytesOf(result.stdout, result.stderr, result.output),
        warnings: result.warnings?.length ? result.warnings : null,
      },
      statements: [
        keepOutput({ leaseId, ...result, compile: result.compile ?? null }),
        dropChunks({ leaseId, ...result }),
        ...(items ? [keepItems(items, { leaseId, hash: result.hash, now })] : []),
      ],
    },
    read,
  );
}

const endedByThis = query
  .select({ id: executions.id })
  .from(executions)
  .where(
    and(
      eq(executions.leaseId, sql.placeholder("leaseId")),
      eq(executions.resultHash, sql.placeholder("hash")),
    ),
  );
/** Chunks are no longer needed: the result has all output. */
const dropChunks = statement(
  query.delete(outputChunks).where(eq(outputChunks.executionId, sql`${endedByThis}`)),
);
const bytes = (name: string) => sql.placeholder(name) as never;
const keepOutput = statement(
  query
    .update(payloads)
    .set({
      stdout: bytes("stdout"),
      stderr: bytes("stderr"),
      output: bytes("output"),
      compile: bytes("compile"),
    })
    .where(eq(payloads.executionId, sql`${endedByThis}`)),
);
