import type { ToolCall, ToolCalls } from "../../../shared/wire/tool-call.ts";
import { jobId } from "./jobs.ts";

export const toolCall: ToolCall = {
  number: 1,
  name: "get_price",
  arguments: { item: "tea" },
  stdout_at: 0,
  stderr_at: 0,
};

export const toolCalls: ToolCalls = { job_id: jobId, status: "running", calls: [toolCall] };

export const answeredCall = { job_id: jobId, number: toolCall.number };

export const answerExamples = {
  result: { summary: "What it returns", value: { result: 380 } },
  error: { summary: "What it raises", value: { error: "No item is named tea." } },
};
