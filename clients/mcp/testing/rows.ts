import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { ScriptedAgent } from "../../../api/testing/scripted-agent.ts";
import { describeClient } from "./client-rows.ts";
import { describeCancelling } from "./job-rows.ts";
import { generations } from "./generations.ts";
import { agentToken, key } from "./settings.ts";

interface Running {
  url: string;
  close(): Promise<void>;
}

interface Answer {
  id: number;
  result?: { contents?: { blob: string }[] };
  error?: { code: number; message: string };
}

const request = (id: number, method: string, params: object) => {
  return { jsonrpc: "2.0", id, method, params };
};

const cancelled = (requestId: number) => {
  return { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId } };
};

/** The statements about the endpoint, with an agent that does what each of them says. */
export function describeMcp(start: () => Promise<Running>, isBehindProxy = false): void {
  let service: Running;
  let agent: ScriptedAgent;
  beforeAll(async () => {
    service = await start();
  });
  beforeEach(() => {
    agent = new ScriptedAgent(service.url, agentToken);
    return () => agent.close();
  });
  afterAll(() => service?.close());

  describe.each(Object.entries(generations))("%s over HTTP", (_name, { http }) => {
    const connect = () => http({ url: service.url, key });
    describeClient(connect, () => ({ agent, url: service.url }));
    if (!isBehindProxy) describeCancelling(connect, () => ({ agent, url: service.url }));
  });

  const send = (path: string, init: RequestInit = {}) => fetch(`${service.url}${path}`, init);
  const withKey = { Authorization: `Bearer ${key}` };
  const initialize = {
    method: "POST",
    headers: {
      ...withKey,
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
    },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: {
        protocolVersion: "2025-11-25",
        capabilities: {},
        clientInfo: { name: "test", version: "1" },
      },
    }),
  };
  const from = (origin: string) => ({
    ...initialize,
    headers: { ...initialize.headers, Origin: origin },
  });

  test("without a key, 401 is a plain Bearer challenge, and no OAuth server is found", async () => {
    const refused = await send("/mcp", { ...initialize, headers: {} });
    expect(refused.status).toBe(401);
    expect(refused.headers.get("WWW-Authenticate")).toBe('Bearer realm="airlock"');
    for (const [method, path] of [
      ["GET", "/.well-known/oauth-protected-resource"],
      ["GET", "/.well-known/oauth-protected-resource/mcp"],
      ["GET", "/.well-known/oauth-authorization-server"],
      ["GET", "/.well-known/openid-configuration"],
      ["POST", "/register"],
    ] as const) {
      const reply = await send(path, { method });
      expect(reply.status).toBe(404);
      expect(await reply.json()).toMatchObject({ code: "not_found" });
    }
  });

  test("initialize gives a session id, and other methods than POST are 405", async () => {
    const reply = await send("/mcp", initialize);
    expect(reply.status).toBe(200);
    expect(reply.headers.get("Mcp-Session-Id")).toMatch(/^[0-9a-f-]{36}$/);
    await reply.text();
    for (const method of ["GET", "DELETE"]) {
      expect((await send("/mcp", { method, headers: withKey })).status).toBe(405);
    }
  });

  const sendBatch = async (...messages: object[]) => {
    const reply = await send("/mcp", { ...initialize, body: JSON.stringify(messages) });
    const text = await reply.text();
    return { status: reply.status, text, answers: [text && JSON.parse(text)].flat() as Answer[] };
  };
  const submit = async () => {
    const { headers } = initialize;
    const body = JSON.stringify({ code: "1" });
    const reply = await send("/execute/async", { method: "POST", headers, body });
    return ((await reply.json()) as { job_id: string }).job_id;
  };

  test("the answers to a batch hold 5 MiB of files; reads beyond that are errors", async () => {
    const jobId = await submit();
    const { lease_id } = await agent.takeJob();
    await agent.upload(lease_id, "large", new Uint8Array(3 * 1024 * 1024).fill(255));
    await agent.result(lease_id);
    const uri = `airlock://jobs/${jobId}/artifacts/large`;
    const reads = [1, 2, 3].map((id) => request(id, "resources/read", { uri }));
    const { status, answers } = await sendBatch(...reads);
    expect(status).toBe(200);
    const blobs = answers.flatMap(({ result }) => result?.contents ?? []);
    expect(blobs.map(({ blob }) => blob.length)).toEqual([4 * 1024 * 1024]);
    const errors = answers.flatMap(({ error }) => error ?? []);
    expect(errors).toHaveLength(2);
    for (const { code, message } of errors) {
      expect([code, message]).toEqual([-32600, expect.stringMatching(/a request of its own/)]);
    }
  });

  test("a request that its own batch cancels is not run and gets no answer", async () => {
    const jobId = await submit();
    const cancel = request(1, "tools/call", { name: "cancel_job", arguments: { job_id: jobId } });
    const { status, answers } = await sendBatch(cancel, request(2, "ping", {}), cancelled(1));
    expect([status, answers.map(({ id }) => id)]).toEqual([200, [2]]);
    const nothing = await sendBatch(cancelled(1), cancel);
    expect([nothing.status, nothing.text]).toEqual([202, ""]);
    const { lease_id, execution_id } = await agent.takeJob();
    expect(execution_id).toBe(jobId);
    await agent.result(lease_id);
  });

  test("only pages of the service and of allowed_origins may use it", async () => {
    const own = await send("/mcp", from(service.url));
    expect(own.status).toBe(200);
    expect(own.headers.get("Access-Control-Allow-Origin")).toBeNull();
    await own.text();

    const allowed = await send("/mcp", from("https://app.example"));
    expect(allowed.status).toBe(200);
    expect(allowed.headers.get("Access-Control-Allow-Origin")).toBe("https://app.example");
    expect(allowed.headers.get("Access-Control-Expose-Headers")).toContain("Mcp-Session-Id");
    await allowed.text();
    const asked = await send("/mcp", {
      method: "OPTIONS",
      headers: {
        Origin: "https://app.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,mcp-session-id",
      },
    });
    expect(asked.status).toBe(204);
    expect(asked.headers.get("Access-Control-Allow-Headers")).toContain("authorization");

    const refused = await send("/mcp", from("https://evil.example"));
    expect(refused.status).toBe(403);
    expect(await refused.json()).toMatchObject({ code: "forbidden" });
  });
}
