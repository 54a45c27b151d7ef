import type { ExecuteRequest } from "../../shared/wire/client/submission.ts";
import type { LeasedJob } from "../../shared/wire/agent/lease.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { Tool } from "../../shared/wire/tool.ts";

/** The caller's functions of a submission, as the store keeps them. */
export interface ToolChoice {
  tools: Tool[];
  tool_timeout?: number;
}

/** Undefined if there are none. */
export function toolsOf({ tools = [], tool_timeout }: ExecuteRequest): ToolChoice | undefined {
  if (tools.length === 0) return undefined;
  return { tools, ...(tool_timeout !== undefined && { tool_timeout }) };
}

export function leasedTools(choice: ToolChoice, maxTimeoutS: number): LeasedJob["tools"] {
  const timeout_s = choice.tool_timeout ?? Math.min(limits.toolTimeoutDefaultS, maxTimeoutS);
  return { functions: choice.tools, timeout_s };
}

/** A second try would repeat calls that the caller has answered. */
export function attemptsOf(request: ExecuteRequest): number | undefined {
  return toolsOf(request) ? 1 : request.max_attempts;
}
