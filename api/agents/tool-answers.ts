import type { AnswersReply } from "../../shared/wire/agent/items.ts";
import type { Deps } from "../deps.ts";
import type { ExecutionRow } from "../store/jobs/row.ts";
import { answersAfter } from "../store/output/tool-calls.ts";
import { backstopMs } from "../waiting.ts";

/** The answers to tool calls that follow the first `after`: at once, or when one comes within `waitMs`. */
export async function waitForAnswers(
  { db, notifier, now }: Deps,
  { id, attempt }: ExecutionRow,
  after: number,
  waitMs: number,
  signal: AbortSignal,
): Promise<AnswersReply> {
  const until = now() + waitMs;
  const wakes = notifier.subscribe([`output:${id}`]);
  try {
    for (;;) {
      const rows = await answersAfter(db, { executionId: id, attempt }, after);
      const left = until - now();
      if (rows.length > 0 || left <= 0 || signal.aborted) {
        await db.durable();
        return { answers: rows.map(toAnswer) };
      }
      await wakes.next(Math.min(left, backstopMs), signal);
    }
  } finally {
    wakes.close();
  }
}

type Row = Awaited<ReturnType<typeof answersAfter>>[number];

function toAnswer({ number, answer, isError }: Row): AnswersReply["answers"][number] {
  const text = answer ?? "null";
  return isError ? { number, error: text } : { number, result_json: text };
}
