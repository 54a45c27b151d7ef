import { Readable } from "node:stream";
import { request } from "undici";
import { expect } from "vitest";
import { Problem } from "../../../shared/wire/errors.ts";
import { ExecutionPage, ExecutionRecord, JobStatus } from "../../../shared/wire/execution.ts";
import { SubmittedJob } from "../../../shared/wire/client/submission.ts";
import { type Reply, ScriptedAgent } from "../scripted-agent.ts";
import { expectDescribed } from "./described.ts";
import { agentTokens, apiKeys } from "./servers.ts";

type Init = {
  headers?: Record<string, string>;
  body?: string | Uint8Array | Blob | ReadableStream;
  signal?: AbortSignal;
};

/** A service under test, for one row of the table. */
export class Api {
  readonly #url: string;
  /** Where commands of its operator find its data. */
  readonly databaseUrl: string;
  readonly #agents: ScriptedAgent[] = [];
  /** Paths of sessions that it has made. */
  readonly #sessions: string[] = [];
  /** Requests that may have made a job. */
  #making = 0;

  constructor(url: string, databaseUrl = "") {
    this.#url = url;
    this.databaseUrl = databaseUrl;
  }

  /** For requests that `send` cannot send. They may make jobs. */
  get url(): string {
    this.#making++;
    return this.#url;
  }

  /** Sends a request. Checks the answer against the rules for every answer and against its OpenAPI description. */
  async send(method: string, path: string, init: Init = {}): Promise<Reply> {
    // Counted before the answer, which a client may give up.
    if (method === "POST") this.#making++;
    // fetch sets Host and Sec-Fetch-Mode itself, so it cannot send what a row gives.
    const { statusCode, headers, body } = await request(this.#url + path, {
      method,
      // An edge runtime compresses text, and a compressed answer has no Content-Length.
      headers: { "Accept-Encoding": "identity", ...init.headers },
      body: await sendable(init.body),
      signal: init.signal ?? null,
      // The server closes idle connections, which a slow machine would notice only when it sends.
      reset: true,
    });
    const isRefused = statusCode >= 400 && statusCode < 500 && statusCode !== 408;
    if (method === "POST" && isRefused) this.#making--;
    const reply = {
      status: statusCode,
      headers: new Headers(
        Object.entries(headers).flatMap(([name, values]) =>
          [values ?? []].flat().map((value): [string, string] => [name, value]),
        ),
      ),
      text: await body.text(),
    };
    const made = reply.headers.get("Location");
    if (path === "/sessions" && made !== null) this.#sessions.push(made);
    expectCommon(reply, method);
    await expectDescribed(this.#url, method, path, reply);
    return reply;
  }

  get(path: string, headers: Record<string, string> = {}): Promise<Reply> {
    return this.send("GET", path, { headers });
  }

  post(path: string, body?: unknown, headers?: Record<string, string>): Promise<Reply> {
    return this.sendJson("POST", path, body, headers);
  }

  /** Sends a value as JSON, a text unchanged, or nothing. */
  sendJson(
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<Reply> {
    if (body === undefined) return this.send(method, path, { headers });
    return this.send(method, path, {
      body: typeof body === "string" ? body : JSON.stringify(body),
      headers: { "Content-Type": "application/json", ...headers },
    });
  }

  agent(token: string = agentTokens[0]): ScriptedAgent {
    const agent = new ScriptedAgent(this.url, token);
    this.#agents.push(agent);
    return agent;
  }

  /** Submits a job and returns the answer. */
  async submit(fields: Record<string, unknown> = {}): Promise<SubmittedJob> {
    const reply = await this.post("/execute/async", { code: "print(1)", ...fields });
    expect(reply.status).toBe(202);
    return SubmittedJob.parse(JSON.parse(reply.text));
  }

  async job(id: string): Promise<JobStatus> {
    return JobStatus.parse(body(await this.get(`/jobs/${id}`)));
  }

  async record(id: string, query = "?view=full"): Promise<ExecutionRecord> {
    return ExecutionRecord.parse(body(await this.get(`/executions/${id}${query}`)));
  }

  /**
   * Ids of the ten newest executions, newest first. If nothing was stored, they are the same before and after.
   * Longer lists took half of the CPU time of these tests.
   */
  async newest(): Promise<string[]> {
    const page = ExecutionPage.parse(body(await this.get("/executions?limit=10")));
    return page.items.map(({ execution_id }) => execution_id);
  }

  /** Removes all agents, unfinished jobs and the sessions of this row from the service. */
  async tidy(): Promise<void> {
    await Promise.all(this.#agents.map((agent) => agent.close()));
    if (this.#making === 0) return;
    const headers = { Authorization: `Bearer ${apiKeys[0]}` };
    for (const path of this.#sessions) await this.send("DELETE", path, { headers });
    const reply = await this.get("/executions?limit=1000&status=queued", headers);
    for (const { execution_id } of ExecutionPage.parse(body(reply)).items) {
      await this.post(`/jobs/${execution_id}/cancel`, undefined, headers);
    }
  }
}

async function sendable(body: Init["body"]): Promise<string | Uint8Array | Readable | null> {
  if (body instanceof Blob) return new Uint8Array(await body.arrayBuffer());
  return body instanceof ReadableStream ? Readable.fromWeb(body) : (body ?? null);
}

export function body(reply: Reply): unknown {
  return JSON.parse(reply.text);
}

/** No cache may give an answer to other clients: docs/contract.md 7.14. */
export const notShared = /^private, (no-store|no-cache|max-age=\d+)(, no-transform)?$/;

/** Headers of every response (docs/contract.md 7.8), and the problem details of every refusal (9.18). */
function expectCommon({ status, headers, text }: Reply, method: string): void {
  expect(headers.get("X-Content-Type-Options")).toBe("nosniff");
  expect(headers.get("X-Frame-Options")).toBe("DENY");
  expect(headers.get("Cache-Control")).toMatch(notShared);
  const correlationId = headers.get("X-Correlation-ID");
  expect(correlationId).toMatch(/^\S+$/);
  if (status < 400 || method === "HEAD") return;
  expect(headers.get("Content-Type")).toBe("application/problem+json");
  const problem = Problem.strict().parse(JSON.parse(text));
  expect(problem).toMatchObject({ status, correlation_id: correlationId });
  expect(problem.type).toBe(`/docs/problems#${problem.code}`);
  expect(problem.title).not.toBe("");
  expect(problem.detail).not.toBe("");
}

export function problemOf(reply: Reply): Problem {
  return Problem.parse(body(reply));
}

/** The refusal of a request whose field is wrong. */
export function expectFault(reply: Reply, path: string): void {
  expect(reply.status).toBe(400);
  expect(problemOf(reply).errors?.map((fault) => fault.path)).toContain(path);
}
