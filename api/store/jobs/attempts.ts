import { and, eq, sql, type SQL, type SQLWrapper } from "drizzle-orm";
import type { LostOutcome } from "../../../shared/wire/attempt.ts";
import { limits } from "../../../shared/wire/limits.ts";
import { agents, executions } from "../schema.ts";
import { listed, query } from "../statement.ts";
import { type AnyDb, tenantRows } from "../tenant.ts";

const { id, attempt, agentId, startedAt, codeStartedAt, lostAttempts } = executions;

/** The values of a lost attempt that are not in the row. */
interface Loss {
  outcome: SQLWrapper | LostOutcome;
  /** JSON text, or null. */
  error: SQLWrapper | null;
  /** Epoch ms. */
  now: SQLWrapper;
}

/**
 * The lost attempts of a row with its present lease. Each statement that ends a lease without a result
 * writes it, so a job that succeeds at its first attempt costs nothing.
 */
export function withLoss({ outcome, error, now }: Loss): SQL {
  const before = sql`coalesce(${lostAttempts}, '[]')`;
  const isFull = sql`json_array_length(${before}) >= ${limits.lostAttemptsMax}`;
  const kept = sql`iif(${isFull}, json_remove(${before}, '$[0]'), ${before})`;
  const name = sql`(select ${agents.name} from ${agents} where ${agents.id} = ${agentId})`;
  return sql`json_insert(${kept}, '$[#]', json_object(
    'attempt', ${attempt}, 'agentId', ${agentId}, 'agent', ${name}, 'claimedAt', ${startedAt},
    'codeStartedAt', ${codeStartedAt}, 'endedAt', cast(${now} as integer),
    'outcome', ${outcome}, 'error', json(${error})))`;
}

/** What is known of the attempts of an execution: those that were lost, and the columns of the last one. */
export type AttemptHistory = Awaited<ReturnType<typeof readAttempts>>[number];

/** All columns come from one read, because an execution may have changed since its row was read. */
export async function readAttempts(db: AnyDb, ids: string[]) {
  return attempts(db, { ids: JSON.stringify(ids) });
}

const attempts = tenantRows((own) =>
  query
    .select({
      id,
      lostAttempts,
      attempt,
      leaseId: executions.leaseId,
      agentId,
      /** Null if the agent is no longer known. */
      agent: agents.name,
      startedAt,
      codeStartedAt,
      endedAt: executions.endedAt,
      resultHash: executions.resultHash,
      error: executions.error,
    })
    .from(executions)
    .leftJoin(agents, eq(agents.id, agentId))
    .where(and(sql`${id} in ${listed("ids")}`, own(executions))),
);
