import { z } from "zod";
import { limits } from "../limits.ts";
import { ResultItem } from "../result-item.ts";
import { ToolCall } from "../tool-call.ts";

/** What the code showed, or a call of a function of the caller. */
export const RunItem = z.union([ResultItem, ToolCall.omit({ answer: true })]);
export type RunItem = z.infer<typeof RunItem>;

/** Items in the order of their numbers. */
export const ItemsReport = z.object({ items: z.array(RunItem).min(1).max(limits.runItemsMax) });
export type ItemsReport = z.infer<typeof ItemsReport>;

/** Which answers an agent asks for: those after the first so many. */
export const AnswersQuery = z.object({
  after: z.coerce.number().int().min(0),
  /** Seconds that the request may wait for one. */
  wait_s: z.coerce.number().min(0).max(60),
});

/**
 * Answers to calls, in the order in which clients gave them.
 * `result_json` is the text that the client sent.
 */
export const AnswersReply = z.object({
  answers: z.array(
    z.object({
      number: z.int(),
      result_json: z.string().optional(),
      error: z.string().optional(),
    }),
  ),
});
export type AnswersReply = z.infer<typeof AnswersReply>;
