import { isTerminal } from "../../shared/wire/execution.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { ToolAnswer, ToolCalls } from "../../shared/wire/tool-call.ts";
import type { ClientDeps } from "../deps.ts";
import { AppError, notFound } from "../errors.ts";
import type { ItemRow } from "../store/output/items.ts";
import {
  type Answer,
  answerCall,
  callsAfter,
  hasCall,
  pendingCalls,
} from "../store/output/tool-calls.ts";
import { backstopMs } from "../waiting.ts";
import { tellCallers } from "./followed.ts";
import { requireExecution } from "./read-records.ts";
import { toAnsweredToolCall, toToolCall } from "./record.ts";
import { endIfOverdue } from "./wait.ts";

/**
 * The calls of a job after one that wait for an answer: at once, or when one comes or the job ends within `waitMs`.
 *
 * @throws AppError 404 when the job is unknown; 401 when the client's key has become void.
 */
export async function waitForCalls(
  deps: ClientDeps,
  id: string,
  after: number,
  waitMs: number,
  signal: AbortSignal,
): Promise<ToolCalls> {
  const { db, notifier, now } = deps;
  const until = now() + waitMs;
  const wakes = notifier.subscribe([`output:${id}`, `execution:${id}`]);
  try {
    for (;;) {
      const execution = await requireExecution(deps, id);
      if (await endIfOverdue(deps, execution)) continue;
      const { status, attempt } = execution;
      const rows =
        status === "running" ? await pendingCalls(db, { executionId: id, attempt }, after) : [];
      const left = until - now();
      if (rows.length > 0 || isTerminal(status) || left <= 0 || signal.aborted) {
        await db.durable();
        return { job_id: id, status, calls: rows.map(toToolCall) };
      }
      await wakes.next(Math.min(left, backstopMs), signal);
      await deps.recheck();
    }
  } finally {
    wakes.close();
  }
}

const pageCalls = 100;
const pageCharacters = 1024 * 1024;

/**
 * The next calls of a job after one, with their answers. A page ends with the call that makes it large: each can have
 * 1 MiB of arguments and 1 MiB of an answer.
 *
 * @throws AppError 404 when the job is unknown.
 */
export async function listCalls(deps: ClientDeps, id: string, after: number): Promise<ToolCalls> {
  const { status, attempt } = await requireExecution(deps, id);
  const rows: ItemRow[] = [];
  for (let characters = 0; rows.length < pageCalls && characters < pageCharacters;) {
    const last = rows.at(-1)?.number ?? after;
    const more = await callsAfter(deps.db, { executionId: id, attempt }, last);
    if (more.length === 0) break;
    for (const { data, answer } of more) characters += data.length + (answer?.length ?? 0);
    rows.push(...more);
  }
  await deps.db.durable();
  return { job_id: id, status, calls: rows.map(toAnsweredToolCall) };
}

/**
 * Stores the answer to a call, which the code gets.
 *
 * @throws AppError 404 when the job or the call is unknown; 409 when it has an answer or the job has ended; 413
 *   when the answer is too large.
 */
export async function answer(
  deps: ClientDeps,
  id: string,
  number: number,
  given: ToolAnswer,
): Promise<void> {
  const { attempt, status } = await requireExecution(deps, id);
  if (await answerCall(deps.db, { executionId: id, number }, toAnswer(given))) {
    return tellCallers(deps, id);
  }
  const call = `call ${number} of job ${id}`;
  if (!(await hasCall(deps.db, { executionId: id, attempt }, number))) {
    throw notFound(`Tool ${call}`, { job_id: id });
  }
  const why = isTerminal(status) ? `has ended with its job: ${status}` : "has an answer already";
  throw new AppError("conflict", `The tool ${call} ${why}.`, { job_id: id });
}

function toAnswer({ result, error }: ToolAnswer): Answer {
  // SQLite would end the text at a NUL.
  const text = error?.replaceAll("\0", "\ufffd") ?? JSON.stringify(result);
  const bytes = new TextEncoder().encode(text).length;
  if (bytes <= limits.toolAnswerMaxBytes) return { text, isError: error !== undefined };
  const detail = `The answer has ${bytes} bytes; the limit is ${limits.toolAnswerMaxBytes}.`;
  throw new AppError("too_large", detail);
}
