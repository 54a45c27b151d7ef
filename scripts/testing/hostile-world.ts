import { randomUUID } from "node:crypto";
import { type AgentProcess, startAgent } from "../../agent/testing/agent-process.ts";
import { startNode } from "../../api/testing/start-node.ts";
import { jsonRequest } from "../command/json-request.ts";

export type Json = Record<string, unknown>;

export type Reply = {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly json: Json;
};

/** An API with a key, and an agent with a token and a name that can be told from all else. */
export type HostileWorld = {
  readonly url: string;
  readonly agentName: string;
  readonly agent: AgentProcess;
  /** All that no code may find out. */
  readonly secrets: Readonly<Record<"key" | "token" | "agentName" | "address", string>>;
  readonly get: (path: string) => Promise<Reply>;
  readonly post: (path: string, body: unknown) => Promise<Reply>;
  /** Runs code to its end. */
  readonly execute: (code: string, more?: Json) => Promise<Json>;
  /** Ends the agent in order, then the API; safe to call twice. */
  readonly close: () => Promise<void>;
};

type Variables = Readonly<Record<string, string>>;

/** Starts both with these AIRLOCK_ variables. */
export async function hostileWorld(
  ofAgent: Variables,
  ofApi: Variables = {},
): Promise<HostileWorld> {
  const [key, token] = [`key-${randomUUID()}`, `token-${randomUUID()}`];
  const agentName = `agent-${randomUUID()}`;
  const api = await startNode({
    AIRLOCK_AGENT_TOKENS: token,
    AIRLOCK_API_AUTH_ENABLED: "true",
    AIRLOCK_API_KEYS: key,
    AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
    ...ofApi,
  });
  const agent = startAgent({
    AIRLOCK_API_URL: api.url,
    AIRLOCK_AGENT_TOKEN: token,
    AIRLOCK_AGENT_NAME: agentName,
    AIRLOCK_DOCKER_HOST: process.env["AIRLOCK_DOCKER_HOST"],
    ...ofAgent,
  });
  const ended = agent.exit.then(() => "ended");
  if ((await Promise.race([agent.ready, ended])) === "ended") {
    await api.close();
    throw new Error(`the agent did not start: ${await agent.stderr}`);
  }

  let closing: Promise<void> | undefined;
  async function close(): Promise<void> {
    agent.process.kill("SIGTERM");
    await agent.exit;
    await api.close();
  }

  async function send(path: string, init: RequestInit): Promise<Reply> {
    const response = await fetch(api.url + path, init);
    const text = await response.text();
    const isJson = /json/.test(response.headers.get("content-type") ?? "");
    const json = (isJson ? JSON.parse(text) : {}) as Json;
    return { status: response.status, headers: response.headers, text, json };
  }
  const headers = { "X-API-Key": key };
  const get = (path: string) => send(path, { headers });
  const post = (path: string, body: unknown) => send(path, jsonRequest("POST", body, headers));

  return {
    url: api.url,
    agentName,
    agent,
    secrets: { key, token, agentName, address: new URL(api.url).host },
    get,
    post,
    execute: async (code, more = {}) => (await post("/execute", { code, ...more })).json,
    close: () => (closing ??= close()),
  };
}
