import { createRoute, z, type OpenAPIHono } from "@hono/zod-openapi";
import { limits } from "../../../shared/wire/limits.ts";
import { AnsweredCall, ToolAnswer, ToolCalls } from "../../../shared/wire/tool-call.ts";
import { exactBody } from "../../http/body/json.ts";
import type { AppEnv } from "../../http/context.ts";
import { jsonRecord } from "../../http/json-page.ts";
import { answer, listCalls, waitForCalls } from "../../jobs/tool-calls.ts";
import { answerExamples, answeredCall, listExamples } from "../../openapi/examples/tool-calls.ts";
import { booleanQuery, integerQuery, jobIdParam, plainNumber } from "../../openapi/parameters.ts";
import { notFound } from "../../errors.ts";
import { body, json, problems } from "../../openapi/responses/bodies.ts";
import { problem } from "../../openapi/responses/problems.ts";

/** Room for the names of its fields, and for characters that the client escapes. */
const answerBytes = 2 * limits.toolAnswerMaxBytes;

/** Calls of the caller's functions that the code has made. */
export function toolCallRoutes(app: OpenAPIHono<AppEnv>): void {
  const list = createRoute({
    method: "get",
    path: "/jobs/{id}/tool-calls",
    operationId: "listToolCalls",
    tags: ["Jobs"],
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
      ...problems("invalid_request", "not_found"),
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
    tags: ["Jobs"],
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
      ...problems("invalid_request", "not_found", "too_large"),
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
