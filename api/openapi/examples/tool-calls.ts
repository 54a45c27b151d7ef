import type { ToolCall, ToolCalls } from "../../../shared/wire/tool-call.ts";
import { jobId } from "./jobs.ts";

export const toolCall: ToolCall = {
  number: 1,
  name: "get_price",
  arguments: { item: "tea" },
  stdout_at: 0,
  stderr_at: 0,
};

const waiting: ToolCalls = { job_id: jobId, status: "running", calls: [toolCall] };
const answered = { ...toolCall, answer: { result: 380 } };

export const listExamples = {
  waiting: { summary: "A call waits", value: waiting },
  all: { summary: "With `all`", value: { ...waiting, calls: [answered] } },
};

export const answeredCall = { job_id: jobId, number: toolCall.number };

export const answerExamples = {
  result: { summary: "What it returns", value: { result: 380 } },
  error: { summary: "What it raises", value: { error: "No item is named tea." } },
};
