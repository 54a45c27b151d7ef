import { expect } from "vitest";
import type { LeasedJob } from "../../../shared/wire/agent/lease.ts";
import type { ScriptedAgent } from "../scripted-agent.ts";
import { type Api, notShared } from "./api.ts";
import { apiKeys } from "./servers.ts";

export const server = "with other protocols" as const;
export const key = { "X-API-Key": apiKeys[0] };
export const message = expect.any(String) as string;

export interface Sandbox {
  sandboxID: string;
  envdAccessToken: string;
  trafficAccessToken: string;
}
interface Answer {
  status: number;
  text: string;
  headers: Headers;
  json: unknown;
}

export async function ask(
  api: Api,
  method: string,
  path: string,
  headers: Record<string, string> = key,
  body?: string | object,
): Promise<Answer> {
  const isBody = typeof body === "string" || body instanceof FormData || body instanceof Uint8Array;
  const answer = await fetch(`${api.url}/compat/e2b${path}`, {
    method,
    headers: { ...(!isBody && { "Content-Type": "application/json" }), ...headers },
    ...(body !== undefined && { body: isBody ? (body as string) : JSON.stringify(body) }),
  });
  expect(answer.headers.get("Cache-Control")).toMatch(notShared);
  const text = await answer.text();
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    json = undefined;
  }
  return { status: answer.status, text, headers: answer.headers, json };
}

const template = { templateID: "code-interpreter-v1" };

/** A sandbox that an agent serves, and the headers of requests inside it. */
export async function opened(api: Api, fields: object = {}) {
  const agent = api.agent();
  agent.maxSessions = 1;
  const answer = ask(api, "POST", "/v2/sandboxes", key, { ...template, ...fields });
  const session = await before(answer, agent.startSession());
  const { status, json } = await answer;
  expect(status).toBe(201);
  const sandbox = json as Sandbox;
  expect(sandbox.sandboxID).toBe(session.session_id);
  const inside = {
    "E2b-Sandbox-Id": sandbox.sandboxID,
    "E2B-Traffic-Access-Token": sandbox.trafficAccessToken,
  };
  const end = async () =>
    expect((await ask(api, "DELETE", `/sandboxes/${sandbox.sandboxID}`)).status).toBe(204);
  return { agent, session, sandbox, inside, end };
}

/** The lines of an answer by their types: output and results are not ordered among each other. */
export function linesOf(text: string): { type: string }[] {
  const lines = text.trimEnd().split("\n");
  return lines
    .map((line) => JSON.parse(line) as { type: string })
    .filter(({ type }) => type !== "keepalive")
    .toSorted((a, b) => a.type.localeCompare(b.type));
}

/** Serves one call while a request waits for it. */
export async function serving(
  agent: ScriptedAgent,
  answer: Promise<Answer>,
  serve: (call: LeasedJob) => Promise<unknown>,
): Promise<Answer> {
  const call = await before(answer, agent.takeCall());
  await serve(call);
  return answer;
}

/** @throws Error if the answer comes first. */
async function before<T>(answer: Promise<Answer>, work: Promise<T>): Promise<T> {
  const refused = answer.then(({ text }) => Promise.reject(new Error(text)));
  return Promise.race([work, refused]);
}
