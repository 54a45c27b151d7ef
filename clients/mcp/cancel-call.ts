import { ExecutionPage, isTerminal } from "../../shared/wire/execution.ts";
import { type Api, askToCancel } from "./api.ts";

/** Metadata by which any process finds the jobs of a call. A value of an execution's metadata has at most 512 characters. */
export function markOf(session: string, requestId: string | number): Record<string, string> {
  const call = `${session}:${JSON.stringify(requestId)}`;
  return call.length <= 512 ? { mcp_call: call } : {};
}

const lookAgainAfterMs = 1000;
/** The longest time that a call waits for its job. */
const callLastsMs = 10 * 60_000;

/**
 * Cancels the jobs of a call. The call may still be storing its job, so it looks twice. Returns the answer
 * of a request that failed.
 */
export async function cancelCall(
  api: Api,
  mark: Record<string, string>,
): Promise<Response | undefined> {
  const [entry] = Object.entries(mark);
  if (!entry) return undefined;
  const query = new URLSearchParams({
    metadata: entry.join(":"),
    created_after: new Date(Date.now() - callLastsMs).toISOString(),
  });
  for (const pauseMs of [0, lookAgainAfterMs]) {
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
    const response = await api(`/executions?${query.toString()}`);
    if (!response.ok) return response;
    const { items } = ExecutionPage.parse(await response.json());
    const open = items.filter(({ status }) => !isTerminal(status));
    const answers = await Promise.all(open.map((job) => askToCancel(api, job.execution_id)));
    const failed = answers.find(({ status }) => status >= 500);
    if (failed || items.length > 0) return failed;
  }
  return undefined;
}
