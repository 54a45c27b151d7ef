import type { ExecutionRecord, Session } from "../../typescript/src/generated.ts";
import { api } from "./client.ts";
import { type Listed, listed, listExecutions, type Page, pageSize } from "./records.ts";

export type { Session };

/** A call as its session lists it. */
export type ListedCall = Listed & Pick<ExecutionRecord, "call" | "context">;

export function listSessions(query: URLSearchParams, signal: AbortSignal): Promise<Page<Session>> {
  const status = query.get("status") as Session["status"] | null;
  const before = query.get("before");
  return api.listSessions(
    { limit: pageSize, ...(status && { status }), ...(before && { before }) },
    { signal },
  );
}

export const getSession = (id: string, signal?: AbortSignal): Promise<Session> =>
  api.getSession({ id }, { signal });

/** Does not wait until it is ready: its page shows what it waits for. */
export const createSession = (jobType: string): Promise<Session> =>
  api.createSession({ sessionRequest: { job_type: jobType, wait: 0 } });

export const runCell = (id: string, code: string): Promise<unknown> =>
  api.executeInSessionAsync({ id, callRequest: { code } });

export const restart = (id: string): Promise<unknown> =>
  api.executeInSessionAsync({ id, callRequest: { restart: true } });

export const interrupt = (id: string): Promise<unknown> => api.interruptSession({ id });

export const endSession = (id: string): Promise<unknown> => api.deleteSession({ id });

/** The newest calls of a session. */
export function listCalls(id: string, signal: AbortSignal): Promise<Page<ListedCall>> {
  const query = new URLSearchParams({ session_id: id });
  return listExecutions(query, pageSize, signal, `${listed},call,context`);
}

const endings: Record<NonNullable<Session["reason"]>, string> = {
  deleted: "ended by a client",
  idle: "no call for its idle time",
  lifetime: "its lifetime was over",
  agent_lost: "its agent was lost",
  agent_stopped: "its agent was stopped",
  out_of_memory: "out of memory",
  engine_lost: "its sandbox broke",
  start_failed: "no interpreter could be started",
};

/** The word for its state: one that takes calls is busy while a call runs. */
export const stateOf = ({ status, busy }: Session): string =>
  status === "ready" && busy ? "busy" : status;

/** Why it waits, or has ended. */
export function whyOf({ message, reason, error }: Session): string | undefined {
  if (reason === null) return message;
  return error ? `${endings[reason]}: ${error.message}` : endings[reason];
}
