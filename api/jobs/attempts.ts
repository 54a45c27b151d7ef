import type { Attempt } from "../../shared/wire/attempt.ts";
import type { ExecutionRecord } from "../../shared/wire/execution.ts";
import type { AnyDb } from "../store/tenant.ts";
import { type AttemptHistory, readAttempts } from "../store/jobs/attempts.ts";
import { optionalTimestamp, timestamp } from "./record.ts";

/** Adds its attempts to each record. */
export async function withAttempts(
  db: AnyDb,
  records: ExecutionRecord[],
): Promise<ExecutionRecord[]> {
  const ids = records.map(({ execution_id: id }) => id);
  const histories = new Map((await readAttempts(db, ids)).map((history) => [history.id, history]));
  return records.map((record) => {
    const history = histories.get(record.execution_id);
    return { ...record, attempts: history ? toAttempts(history) : [] };
  });
}

function toAttempts(history: AttemptHistory): Attempt[] {
  const lost = (history.lostAttempts ?? []).map((one) => ({
    attempt: one.attempt,
    agent_id: one.agentId,
    agent: one.agent,
    claimed_at: timestamp(one.claimedAt),
    code_started_at: optionalTimestamp(one.codeStartedAt),
    ended_at: timestamp(one.endedAt),
    outcome: one.outcome,
    error: one.error,
  }));
  return [...lost, ...last(history)];
}

/** The attempt that runs or has brought the result. If the loss of the last one ended the job, it is among the lost. */
function last(history: AttemptHistory): Attempt[] {
  const { leaseId, agentId, startedAt, endedAt, resultHash, lostAttempts } = history;
  const hasResult = resultHash !== null;
  const isLost = endedAt !== null && !hasResult && lostAttempts !== null;
  if (leaseId === null || agentId === null || startedAt === null || isLost) return [];
  return [
    {
      attempt: history.attempt,
      agent_id: agentId,
      agent: history.agent,
      claimed_at: timestamp(startedAt),
      code_started_at: optionalTimestamp(history.codeStartedAt),
      ended_at: optionalTimestamp(endedAt),
      outcome: hasResult ? "result" : null,
      error: history.error,
    },
  ];
}
