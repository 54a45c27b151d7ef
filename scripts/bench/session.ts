import type { SyncResult } from "../../shared/wire/execution.ts";
import type { Session } from "../../shared/wire/client/session.ts";
import type { Service } from "./service.ts";

/** Makes a session that is ready. */
export async function openSession(service: Service, request: object = {}): Promise<string> {
  const session = await service.send<Session>("POST", "/sessions", request);
  if (session.status !== "ready") throw new Error(`no session: ${JSON.stringify(session)}`);
  return session.session_id;
}

/** Runs a call to its end. Throws Error unless it succeeded. */
export async function callSession(service: Service, id: string, call: object): Promise<SyncResult> {
  const result = await service.send<SyncResult>("POST", `/sessions/${id}/execute`, call);
  if (!result.success) throw new Error(`a call failed: ${JSON.stringify(result)}`);
  return result;
}

export async function endSession(service: Service, id: string): Promise<void> {
  await service.send("DELETE", `/sessions/${id}`);
}
