import { createRoute, type OpenAPIHono, z } from "@hono/zod-openapi";
import { and, asc, eq, gt, isNull, sql } from "drizzle-orm";
import {
  AnsweredCall,
  isTerminal,
  ToolAnswer,
  type ToolCall,
  ToolCalls,
} from "../../shared/wire/executions.ts";
import type { AnswersReply } from "../../shared/wire/leases.ts";
import { limits } from "../../shared/wire/limits.ts";
import { backstopMs, type ClientDeps, type Deps } from "../deps.ts";
import { AppError, notFound } from "../errors.ts";
import { jsonRecord } from "../http/answer.ts";
import { exactBody } from "../http/body.ts";
import type { AppEnv } from "../http/context.ts";
import { jobId } from "../http/examples.ts";
import {
  body,
  booleanQuery,
  integerQuery,
  jobIdParam,
  json,
  plainNumber,
  problem,
} from "../http/responses.ts";
import { executions, runItems } from "../store/schema.ts";
import { given, query, rowsQuery } from "../store/statement.ts";
import { perTenant, run, tenantRow } from "../store/tenant.ts";
import { type ItemRow, itemsOf } from "./output.ts";
import { requireExecution, toAnsweredToolCall, toToolCall } from "./read.ts";
import type { ExecutionRow } from "./sql.ts";
import { endIfOverdue, tellCallers } from "./wait.ts";

/** Room for the names of its fields, and for characters that the client escapes. */
const answerBytes = 2 * limits.toolAnswerMaxBytes;

/** Calls of the caller's functions that the code has made. */
export function toolCallRoutes(app: OpenAPIHono<AppEnv>): void {
  const list = createRoute({
    method: "get",
    path: "/jobs/{id}/tool-calls",
    operationId: "listToolCalls",
    summary: "Calls that wait for an answer, or all",
    description:
      "For clients that do not follow the events. Answers when a call of one of the job's `tools` waits, when the job has ended, or after `wait` seconds. An answer has only a few calls: ask again with `after`, until it has none. `all` answers at once.",
    request: {
      params: jobIdParam,
      query: z.object({
        after: integerQuery(
          { minimum: 0, maximum: limits.runItemsMax, default: 0 },
          "Number of the last call that the client has.",
        ),
        wait: integerQuery({ minimum: 0, maximum: 60, default: 0 }, "Seconds to wait at most."),
        all: booleanQuery("Also those that have an answer, or whose job has ended."),
      }),
    },
    responses: {
      200: json(ToolCalls, "The calls, and the job's status.", { examples: listExamples }),
    },
  });
  app.openapi(list, async (c) => {
    const { after, wait, all } = c.req.valid("query");
    const { id } = c.req.valid("param");
    const { signal } = c.req.raw;
    const calls = all
      ? await listCalls(c.get("client"), id, after)
      : await waitForCalls(c.get("client"), id, after, wait * 1000, signal);
    return (await jsonRecord(c, calls)) as never;
  });

  const post = createRoute({
    method: "post",
    path: "/jobs/{id}/tool-calls/{number}",
    operationId: "answerToolCall",
    summary: "Answer a call",
    description:
      "The function returns `result`, or raises ToolError with `error`. A call has one answer: a second one is 409, and so is one that comes after the job's end.",
    middleware: exactBody(answerBytes),
    request: {
      params: jobIdParam.extend({
        number: z.string().openapi({
          param: { name: "number", in: "path" },
          type: "integer",
          minimum: 1,
          maximum: limits.runItemsMax,
          description: "Number of the call.",
          example: answeredCall.number,
        }),
      }),
      ...body(ToolAnswer, { examples: answerExamples }),
    },
    responses: {
      200: json(AnsweredCall, "The answer is stored, and goes to the code.", {
        example: answeredCall,
      }),
      409: problem("conflict"),
    },
  });
  app.openapi(post, async (c) => {
    const { id, number: text } = c.req.valid("param");
    const number = plainNumber(text);
    if (number === undefined) throw notFound(`Tool call ${text} of job ${id}`, { job_id: id });
    await answer(c.get("client"), id, number, c.req.valid("json"));
    return c.json({ job_id: id, number }, 200);
  });
}

/**
 * The calls of a job after one that wait for an answer: at once, or when one comes or the job ends within `waitMs`.
 *
 * @throws AppError 404 when the job is unknown; 401 when the client's key has become void.
 */
async function waitForCalls(
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
        status === "running" ? await pending(db, { executionId: id, attempt, number: after }) : [];
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
async function listCalls(deps: ClientDeps, id: string, after: number): Promise<ToolCalls> {
  const { status, attempt } = await requireExecution(deps, id);
  const rows: ItemRow[] = [];
  for (let characters = 0; rows.length < pageCalls && characters < pageCharacters;) {
    const number = rows.at(-1)?.number ?? after;
    const more = await every(deps.db, { executionId: id, attempt, number });
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
async function answer(
  deps: ClientDeps,
  id: string,
  number: number,
  given: ToolAnswer,
): Promise<void> {
  const answer = { executionId: id, number, ...storedAnswer(given) };
  const { rowsAffected } = await run(deps.db, storeAnswer(answer));
  if (rowsAffected === 1) return tellCallers(deps, id);
  const { attempt, status } = await requireExecution(deps, id);
  const call = `call ${number} of job ${id}`;
  if (!(await findCall(deps.db, { executionId: id, attempt, number }))) {
    throw notFound(`Tool ${call}`, { job_id: id });
  }
  const why = isTerminal(status) ? `has ended with its job: ${status}` : "has an answer already";
  throw new AppError("conflict", `The tool ${call} ${why}.`, { job_id: id });
}

/** JSON, or the text of an error. */
function storedAnswer({ result, error }: ToolAnswer) {
  // SQLite would end the text at a NUL.
  const text = error?.replaceAll("\0", "\ufffd") ?? JSON.stringify(result);
  const bytes = new TextEncoder().encode(text).length;
  if (bytes <= limits.toolAnswerMaxBytes) return { text, isError: Number(error !== undefined) };
  const detail = `The answer has ${bytes} bytes; the limit is ${limits.toolAnswerMaxBytes}.`;
  throw new AppError("too_large", detail);
}

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
      const rows = await answersAfter(db, { executionId: id, attempt, after });
      const left = until - now();
      if (rows.length > 0 || left <= 0 || signal.aborted) {
        await db.durable();
        return { answers: rows.map(answerForAgent) };
      }
      await wakes.next(Math.min(left, backstopMs), signal);
    }
  } finally {
    wakes.close();
  }
}

type Row = Awaited<ReturnType<typeof answersAfter>>[number];

function answerForAgent({ number, answer, isError }: Row): AnswersReply["answers"][number] {
  const text = answer ?? "null";
  return isError ? { number, error: text } : { number, result_json: text };
}

const isCall = eq(runItems.kind, "tool_call");

/** Stores the answer to a call of a running execution that waits for it. */
const storeAnswer = perTenant(
  (own) => sql`
  update ${runItems} set answer = ${given("text")}, is_error = ${given("isError")}, answered = 1 + (
    select coalesce(max(other.answered), 0) from ${runItems} as other
    where other.execution_id = ${runItems.executionId} and other.attempt = ${runItems.attempt}
      and ${own(runItems, "other")})
  where ${runItems.executionId} = ${given("executionId")} and ${runItems.number} = ${given("number")}
    and ${isCall} and answered is null and ${own(runItems)}
    and exists (select 1 from ${executions} where ${executions.id} = ${runItems.executionId}
      and ${executions.attempt} = ${runItems.attempt} and ${executions.status} = 'running' and ${own(executions)})`,
);

/** The call of an attempt with this number, answered or not. */
const findCall = tenantRow((own) =>
  query
    .select({ number: runItems.number })
    .from(runItems)
    .where(
      and(
        eq(runItems.executionId, given("executionId")),
        eq(runItems.attempt, given("attempt")),
        eq(runItems.number, given("number")),
        isCall,
        own(runItems),
      ),
    ),
);

/** The next few calls of an attempt that wait for an answer, after the one with this number. */
const pending = itemsOf(() => and(isCall, isNull(runItems.answered)));
/** The same, also of those that have an answer. */
const every = itemsOf(() => isCall);

/** The next few answers of an attempt after the first so many, in the order in which they came. */
const answersAfter = rowsQuery(
  query
    .select({ number: runItems.number, answer: runItems.answer, isError: runItems.isError })
    .from(runItems)
    .where(
      and(
        eq(runItems.executionId, given("executionId")),
        eq(runItems.attempt, given("attempt")),
        gt(runItems.answered, given("after")),
      ),
    )
    .orderBy(asc(runItems.answered))
    .limit(4),
);

const toolCall: ToolCall = {
  number: 1,
  name: "get_price",
  arguments: { item: "tea" },
  stdout_at: 0,
  stderr_at: 0,
};

const waiting: ToolCalls = { job_id: jobId, status: "running", calls: [toolCall] };
const answered = { ...toolCall, answer: { result: 380 } };

const listExamples = {
  waiting: { summary: "A call waits", value: waiting },
  all: { summary: "With `all`", value: { ...waiting, calls: [answered] } },
};

const answeredCall = { job_id: jobId, number: toolCall.number };

const answerExamples = {
  result: { summary: "What it returns", value: { result: 380 } },
  error: { summary: "What it raises", value: { error: "No item is named tea." } },
};
