import { Readable } from "node:stream";
import { request } from "undici";
import { expect } from "vitest";
import { type ExecutionErrorType, Problem } from "../../../shared/wire/errors.ts";
import { ExecutionPage, ExecutionRecord, JobStatus } from "../../../shared/wire/executions.ts";
import { BuildResult } from "../../../shared/wire/job-types.ts";
import type { LeasedBuild, PollRequest } from "../../../shared/wire/leases.ts";
import { Session } from "../../../shared/wire/sessions.ts";
import { SubmittedJob } from "../../../shared/wire/submissions.ts";
import { openApiCheck, type OpenApiCheck } from "../openapi-check.ts";
import type { OpenApiDocument } from "../openapi-document.ts";
import { receiverSecret } from "../receiver.ts";
import { reservePort } from "../reserve-port.ts";
import { type Reply, ScriptedAgent } from "../scripted-agent.ts";

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

  /** An agent that has polled once. */
  async connected(poll: Partial<PollRequest> = {}): Promise<ScriptedAgent> {
    const agent = this.agent();
    await agent.poll(poll);
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

/** One rule of the contract, and its check. */
export interface Row extends Where {
  rule: string;
  check: (api: Api) => Promise<void>;
}

/** What a row needs. */
interface Where {
  /** The configuration that it needs; default "open". */
  server?: ServerName;
  /** The only platform that it applies to, and why; default: both. */
  only?: { on: "node" | "workerd"; why: string };
  /** Why it can be checked only on workerd alone, without wrangler's proxy. */
  hiddenByWrangler?: string;
}

/** A row that needs nothing but the open service. */
export function test(rule: string, check: Row["check"]): Row {
  return { rule, check };
}

/** Rows that need this configuration, but for those that name another one. */
export function on(server: ServerName, rows: Row[]): Row[] {
  return rows.map((row) => ({ server, ...row }));
}

/** Keys and tokens that the servers under test accept. */
export const agentTokens = ["agent-token-0-0123456789", "agent-token-1-0123456789"] as const;
export const apiKeys = ["api-key-0-0123456789abcd", "api-key-1-0123456789abcd"] as const;
export const operatorKey = "operator-key-0123456789";
export const customHeader = "X-Airlock-Key";

export const maxRequestBytes = 64 * 1024;
export const maxTimeoutS = 600;
export const maxQueueSize = 3;
export const maxSessions = 5;
export const maxEventStreams = 2;
/** Longer than a slow machine needs for the first post of a lease. */
const leaseTtlS = 4;
export const maxFileBytes = 1_000_000;
export const maxFilesBytes = 2000;
export const maxImageBytes = 50_000;

const common = {
  AIRLOCK_AGENT_TOKENS: agentTokens.join(","),
  AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
  AIRLOCK_LOG_LEVEL: "error",
  AIRLOCK_MAX_REQUEST_BYTES: String(maxRequestBytes),
  AIRLOCK_MAX_TIMEOUT: String(maxTimeoutS),
  AIRLOCK_MAX_ARTIFACT_BYTES: "100000",
  AIRLOCK_MAX_FILE_BYTES: String(maxFileBytes),
  AIRLOCK_JOB_TYPES: JSON.stringify({ ml: { memory_limit: "1g", timeout: 300 } }),
};

const locked = {
  AIRLOCK_API_AUTH_ENABLED: "true",
  AIRLOCK_API_KEYS: apiKeys.join(","),
  AIRLOCK_OPERATOR_KEYS: operatorKey,
};

/** Job types of the rows about builds. Built images stay, so each row has its own type. */
const buildable = {
  ...Object.fromEntries(
    Array.from({ length: 16 }, (_, n) => [`build-${n}`, { requirements: ["numpy==2.3.4"] }]),
  ),
  "with-dockerfile": { dockerfile: "FROM python:3.12\nENV A=1\nRUN make" },
};

const withImages = Object.fromEntries(
  Array.from({ length: 6 }, (_, n) => [`image-${n}`, { requirements: ["numpy==2.3.4"] }]),
);

/** Where rows start a receiver of webhooks. */
export const receiverPort = await reservePort();
const receiverUrl = `http://127.0.0.1:${receiverPort}`;

/** The configurations that rows of the table need, as AIRLOCK_ variables. */
export const servers = {
  open: common,
  "with keys": { ...common, ...locked, AIRLOCK_MAX_EVENT_STREAMS: String(maxEventStreams) },
  "with a header of its own": {
    ...common,
    AIRLOCK_API_AUTH_ENABLED: "true",
    AIRLOCK_API_KEYS: apiKeys[0],
    AIRLOCK_API_AUTH_HEADER: customHeader,
    AIRLOCK_API_DOCS_PUBLIC: "true",
  },
  "with other protocols": {
    ...common,
    ...locked,
    AIRLOCK_COMPAT: "sandbox-fusion,piston,dify,librechat,e2b",
    AIRLOCK_JOB_TYPES: JSON.stringify({
      base: { tenants: ["others"] },
      open: { network: "bridge" },
      theirs: { tenants: ["others"], network: "bridge" },
    }),
    AIRLOCK_COMPAT_KEY: apiKeys[0],
    AIRLOCK_MAX_QUEUE_SIZE: String(maxQueueSize),
    AIRLOCK_API_RATE_LIMIT_ENABLED: "true",
    AIRLOCK_API_RATE_LIMIT_REQUESTS: "1000",
  },
  "with the rate limit of the contract": {
    ...common,
    ...locked,
    AIRLOCK_API_RATE_LIMIT_ENABLED: "",
  },
  "with a short window": {
    ...common,
    ...locked,
    AIRLOCK_API_RATE_LIMIT_ENABLED: "true",
    AIRLOCK_API_RATE_LIMIT_REQUESTS: "20",
    AIRLOCK_API_RATE_LIMIT_WINDOW_SECONDS: "3",
  },
  "with a short queue": {
    ...common,
    AIRLOCK_MAX_QUEUE_SIZE: String(maxQueueSize),
    AIRLOCK_MAX_BATCH_BYTES: "200000",
    AIRLOCK_ALLOWED_HOSTS: "Tools.example",
    AIRLOCK_MAX_FILES_BYTES: String(maxFilesBytes),
  },
  "with a long queue": {
    ...common,
    AIRLOCK_MAX_QUEUE_SIZE: "5000",
    AIRLOCK_ALLOW_RUNTIME_REQUIREMENTS: "true",
    AIRLOCK_MAX_REQUEST_BYTES: "4000000",
    AIRLOCK_JOB_TYPES: JSON.stringify({ small: { memory_limit: "64m" } }),
  },
  "with job types": {
    ...common,
    AIRLOCK_IMAGE_PREFIX: "registry.example/team",
    AIRLOCK_MAX_IMAGE_BYTES: String(maxImageBytes),
    AIRLOCK_JOB_TYPES: JSON.stringify({
      ...buildable,
      ...withImages,
      broken: { requirements: ["numpy==2.3.4"] },
      versioned: { python_version: "3.12" },
      official: { base_image: "docker.io/library/python:3.11.9-slim" },
      custom: { base_image: "registry.example/science:7", memory_limit: "2g", cpu_limit: 1.5 },
      labelled: { labels: { gpu: "a100" } },
      "with-gpus": { gpus: 2 },
      "hidden-1": { tenants: ["search"] },
      own: { tenants: ["search", "default"] },
    }),
  },
  "with a small database": { ...common, AIRLOCK_MAX_DATABASE_BYTES: "1000000" },
  "with webhooks": {
    ...common,
    AIRLOCK_WEBHOOK_ENDPOINTS: JSON.stringify({
      failures: {
        url: `${receiverUrl}/failures`,
        events: ["execution.failed"],
        secrets: [receiverSecret],
      },
    }),
    AIRLOCK_WEBHOOK_CALLBACKS: JSON.stringify({
      hosts: ["hooks.example", receiverUrl],
      secrets: [receiverSecret],
    }),
    AIRLOCK_WEBHOOK_PRIVATE_ADDRESSES: "127.0.0.1",
  },
  "with tenants": {
    ...common,
    ...locked,
    AIRLOCK_JOB_TYPES: JSON.stringify({ ml: { priority: 1000 } }),
    AIRLOCK_TENANT_JOB_TYPES: "3",
    AIRLOCK_WEBHOOK_ENDPOINTS: JSON.stringify({
      all: { url: "http://127.0.0.1:1/", secrets: [receiverSecret] },
    }),
  },
  "with sessions": { ...common, AIRLOCK_MAX_SESSIONS_PER_TENANT: String(maxSessions) },
  "in production": { ...common, AIRLOCK_PRODUCTION_MODE: "true" },
  "with short leases": {
    ...common,
    AIRLOCK_LEASE_TTL_S: String(leaseTtlS),
    AIRLOCK_LIVENESS_S: String(leaseTtlS),
    AIRLOCK_JOB_TYPES: JSON.stringify({ ml: {}, science: {}, poison: {} }),
  },
} satisfies Record<string, Record<string, string>>;
export type ServerName = keyof typeof servers;

const checks = new Map<string, Promise<OpenApiCheck>>();
/** By the document: most services have the same one, and compiling its schemas takes long. */
const checksOfDocuments = new Map<string, OpenApiCheck>();

/** Checks an answer against the service's own OpenAPI document. */
async function expectDescribed(
  url: string,
  method: string,
  path: string,
  { status, headers, text }: Reply,
): Promise<void> {
  const check = await (checks.get(url) ?? read(url));
  const { pathname } = new URL(path, url);
  if (!check.describes(method, pathname)) return;
  const faults = check.faultsOfAnswer(method, pathname, { status, headers, body: text });
  expect({ method, pathname, text, faults }).toEqual({ method, pathname, text, faults: [] });
}

function read(url: string): Promise<OpenApiCheck> {
  const headers = { Authorization: `Bearer ${apiKeys[0]}` };
  const check = fetch(`${url}/openapi.json`, { headers })
    .then((response) => response.text())
    .then(checkOf);
  checks.set(url, check);
  return check;
}

function checkOf(document: string): OpenApiCheck {
  const known = checksOfDocuments.get(document);
  const check = known ?? openApiCheck(JSON.parse(document) as OpenApiDocument);
  checksOfDocuments.set(document, check);
  return check;
}

/** An id that nothing has. */
export const nobody = "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10";
export const dockerError = { type: "docker_error", message: "gone", phase: "startup" } as const;
export const failure = { type: "value_error", message: "", phase: "execution" } as const;
export const log = (offset: number, text: string) => ({
  stream: "stdout",
  offset,
  data_base64: btoa(text),
});

export const release = (agent: ScriptedAgent, lease: string) =>
  agent.post(lease, "release", { error: dockerError });

/** An agent with a job of its own. */
export async function working(api: Api, fields: Record<string, unknown> = {}) {
  const { job_id } = await api.submit(fields);
  const agent = api.agent();
  const { lease_id } = await agent.takeJob();
  return { agent, job_id, lease_id };
}

/** A job that has failed with this error. */
export async function failedJob(
  api: Api,
  type: ExecutionErrorType = "value_error",
  fields: Record<string, unknown> = {},
): Promise<string> {
  const { job_id } = await api.submit(fields);
  const agent = api.agent();
  let taken = await agent.takeJob();
  while (taken.execution_id !== job_id) taken = await agent.takeJob();
  const error = { type, message: `${type}!`, phase: "execution" } as const;
  const reply = await agent.result(taken.lease_id, { status: "failed", exit_code: 1, error });
  expect(reply.status).toBe(200);
  return job_id;
}

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

interface Served {
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

export const defaultImage = "python:3.13-slim";

/** A different image for each number. */
export const digest = (n: number): string => `sha256:${String(n).padStart(64, "0")}`;

export const buildSuccess = {
  status: "built",
  digest: digest(1),
  python_version: "3.13.5",
  manifest_digest: null,
} as const;
export const broken = { type: "docker_error", message: "no space left", phase: "startup" } as const;
export const buildFailure = (error: object) => ({ status: "failed", error });

interface Started {
  lease: LeasedBuild;
  /** The client's answer. */
  answer: Promise<Reply>;
}

/** Requests a build and lets an agent take it. */
export async function startBuild(
  api: Api,
  agent: ScriptedAgent,
  name: string,
  tag?: string,
): Promise<Started> {
  await agent.poll({ free_slots: 0 });
  const query = tag === undefined ? "" : `?version_tag=${tag}`;
  const answer = api.post(`/job-types/${name}/build${query}`);
  return { lease: await agent.takeBuild(), answer };
}

/** Builds a job type from beginning to end. */
export async function buildType(
  api: Api,
  agent: ScriptedAgent,
  name: string,
  changes: Partial<typeof buildSuccess | { digest: string; python_version: string }>,
  tag?: string,
): Promise<BuildResult> {
  const { lease, answer } = await startBuild(api, agent, name, tag);
  await agent.postBuild(lease.lease_id, "result", { ...buildSuccess, ...changes });
  const reply = await answer;
  expect(reply.status).toBe(200);
  return BuildResult.strict().parse(body(reply));
}

export const logChunk = (offset: number, text: string) => ({ offset, data_base64: btoa(text) });

/** An agent whose engine has these images. */
export function agentWith(api: Api, ...images: string[]): Promise<ScriptedAgent> {
  return api.connected({ images, free_slots: 0 });
}

/** Sends one message to the endpoint, and returns its answer: JSON, or an event with it. */
export async function callMcp(
  api: Api,
  headers: Record<string, string>,
  method: string,
  params: object = {},
): Promise<string> {
  const response = await fetch(`${api.url}/mcp`, {
    method: "POST",
    headers: {
      ...headers,
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
  });
  return response.text();
}
