import { expect } from "vitest";
import { Session } from "../../../shared/wire/client/session.ts";
import type { Reply, ScriptedAgent } from "../scripted-agent.ts";
import { type Api, body } from "./api.ts";

/** Sessions of the rows, and agents that hold them. */

export const sessionOf = (reply: Reply): Session => Session.strict().parse(body(reply));
export const readSession = async (api: Api, id: string): Promise<Session> =>
  sessionOf(await api.get(`/sessions/${id}`));

/** A session that waits for an agent. */
export async function queuedSession(api: Api, fields: object = {}): Promise<string> {
  const reply = await api.post("/sessions", { wait: 0, ...fields });
  expect(reply.status).toBe(202);
  return sessionOf(reply).session_id;
}

export function holder(api: Api): ScriptedAgent {
  const agent = api.agent();
  agent.maxSessions = 2;
  return agent;
}

export interface Served {
  id: string;
  agent: ScriptedAgent;
  leaseId: string;
}

/** A session that an agent serves. */
export async function served(api: Api, fields: object = {}): Promise<Served> {
  const id = await queuedSession(api, fields);
  const agent = holder(api);
  const { session_id, lease_id } = await agent.startSession();
  expect(session_id).toBe(id);
  return { id, agent, leaseId: lease_id };
}

/** Ends a session before the row does. */
export async function end(api: Api, id: string): Promise<void> {
  expect((await api.send("DELETE", `/sessions/${id}`)).status).toBe(204);
}
