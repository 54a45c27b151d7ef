import { createHash, randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { get, type IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Client, createClient } from "@libsql/client";
import { afterAll, beforeAll, expect } from "vitest";
import { type AgentProcess, startAgent } from "../../agent/testing/agent-process.ts";
import { imagesOf, removeContainersOf, removeImages } from "../../agent/testing/raw-engine.ts";
import { reservePort } from "../../api/testing/reserve-port.ts";
import { startNodeIn } from "../../api/testing/start-node.ts";
import { isLab, waitUntil } from "../../shared/testing/test-file.ts";
import type { ExecutionRecord } from "../../shared/wire/executions.ts";
import type { Build, BuildResult, JobTypeView } from "../../shared/wire/job-types.ts";
import { jsonRequest } from "../operate/command.ts";
import { type Acknowledged, checkLedger, startAudit } from "./ledger.ts";

export type Variables = Readonly<Record<string, string>>;

export type ServiceOptions = {
  /** Data of the API and spools of the agents; removed at the end. */
  readonly folder?: string;
  /** An API key, which then every request needs; default: none. */
  readonly key?: string;
  /** AIRLOCK_ variables of the API. */
  readonly api?: Variables;
  /** AIRLOCK_ variables of all agents. */
  readonly agents?: Variables;
};

/** An API, and agents on the real engine. Disposing of it removes all that they made. */
export type TestService<Api extends RunningApi = RunningApi> = Awaited<
  ReturnType<typeof startTestServiceOn<Api>>
>;

/** An agent under its whole name. */
export type TestAgent = AgentProcess & {
  readonly name: string;
  /** Ends it by this signal; resolves with its exit code, null for a signal that it did not handle. */
  readonly end: (signal: NodeJS.Signals) => Promise<number | null>;
};

type RunningApi = { readonly url: string; readonly databaseUrl: string; close(): Promise<unknown> };

/** With the API on Node over a file, at an address that stays. */
export async function startTestService(options: ServiceOptions = {}) {
  const { folder = makeFolder() } = options;
  const port = await reservePort(options.api?.["AIRLOCK_HOST"]);
  const start = (vars: Variables) => startNodeIn(folder, { AIRLOCK_PORT: String(port), ...vars });
  return startTestServiceOn(start, { ...options, folder });
}

/** With an API that `start` starts. */
export async function startTestServiceOn<Api extends RunningApi>(
  start: (vars: Record<string, string>) => Promise<Api>,
  { folder = makeFolder(), key, api: apiVars = {}, agents: agentVars = {} }: ServiceOptions = {},
) {
  const name = `airlock-test-${randomUUID()}`;
  const token = `token-${randomUUID()}`;
  const agents: TestAgent[] = [];

  const startNext = () =>
    start({
      AIRLOCK_AGENT_TOKENS: token,
      AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
      AIRLOCK_IMAGE_PREFIX: name,
      ...(key !== undefined && { AIRLOCK_API_AUTH_ENABLED: "true", AIRLOCK_API_KEYS: key }),
      ...apiVars,
    });
  let api = await startNext();
  const db = createClient({ url: api.databaseUrl });
  await startAudit(db);

  return {
    /** No other service has it: the names of its agents and images begin with it. */
    name,
    folder,
    token,
    db,
    get url(): string {
      return api.url;
    },
    /** The API that runs now. */
    api: (): Api => api,
    startApi: async (): Promise<void> => {
      api = await startNext();
    },
    /** Starts an agent, with a command that enters its host; resolves once it has polled. */
    startAgent: async (
      own = "agent",
      vars: Variables = {},
      enter: readonly string[] = [],
    ): Promise<TestAgent> => {
      const agentName = `${name}-${own}`;
      const env = {
        AIRLOCK_API_URL: api.url,
        AIRLOCK_AGENT_TOKEN: token,
        AIRLOCK_AGENT_NAME: agentName,
        AIRLOCK_DOCKER_HOST: process.env["AIRLOCK_DOCKER_HOST"],
        AIRLOCK_SPOOL_DIR: join(folder, `spool-${own}`),
        AIRLOCK_WARM_POOL_SIZE: "0",
        ...agentVars,
        ...vars,
      };
      const started = startAgent(env, enter);
      const end: TestAgent["end"] = (signal) => {
        started.process.kill(signal);
        return started.exit;
      };
      const agent = { ...started, name: agentName, end };
      agents.push(agent);
      await agent.ready;
      return agent;
    },
    ...serviceCalls(() => api.url, db, key),
    /** The books, once nothing runs any more. */
    ledger: (acknowledged: readonly Acknowledged[]) => checkLedger(db, acknowledged),
    /** Expects that these jobs have succeeded, with so many second attempts, and that the books balance. */
    expectSucceeded: async (ids: readonly string[], retried: number): Promise<void> => {
      const books = ids.map((id) => ({ id, ends: ["succeeded"] }));
      expect(await checkLedger(db, books)).toMatchObject({ retried, faults: [] });
    },
    [Symbol.asyncDispose]: async (): Promise<void> => {
      await Promise.all(agents.map(endAgent));
      db.close();
      await api.close();
      rmSync(folder, { recursive: true, force: true });
      for (const agent of agents) await removeContainersOf(agent.name);
      await removeImages(...(await imagesOf(name)));
    },
  };
}

const makeFolder = (): string => mkdtempSync(join(tmpdir(), "airlock-service-"));

/**
 * Ends an agent at once, as a second signal does: it removes its containers itself. If it were killed, the engine could
 * still create a container for it later.
 */
async function endAgent({ process, exit }: TestAgent): Promise<void> {
  // A frozen agent handles signals only when it continues.
  for (const signal of ["SIGTERM", "SIGINT", "SIGCONT"] as const) process.kill(signal);
  const timer = setTimeout(() => process.kill("SIGKILL"), 60_000);
  await exit;
  clearTimeout(timer);
}

export type Json = Record<string, unknown>;
type Reply<T = Json> = {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** Empty if the answer is no JSON. */
  readonly json: T;
};

/**
 * What a client asks of a service.
 *
 * @param url Where the API is now.
 */
function serviceCalls(url: () => string, db: Client, key?: string) {
  const keyHeader: Record<string, string> = key === undefined ? {} : { "X-API-Key": key };

  async function send<T = Json>(method: string, path: string, body?: unknown): Promise<Reply<T>> {
    const response = await fetch(url() + path, jsonRequest(method, body, keyHeader));
    const { status, headers } = response;
    const text = await response.text();
    const isJson = /json/.test(headers.get("Content-Type") ?? "");
    return { status, headers, text, json: (isJson ? JSON.parse(text) : {}) as T };
  }

  const record = async (id: string) =>
    (await send<ExecutionRecord>("GET", `/executions/${id}?view=full`)).json;

  async function lastBegun(id: string): Promise<number> {
    const { rows } = await db.execute({
      sql: "SELECT iif(code_started_at IS NULL, 0, attempt) AS n FROM executions WHERE id = ?",
      args: [id],
    });
    return Number(rows[0]?.["n"]);
  }

  return {
    send,
    /** Runs code to its end. */
    execute: async (code: string, more: Json = {}): Promise<Json> =>
      (await send("POST", "/execute", { code, ...more })).json,
    /** Submits code; resolves with its id once that is acknowledged. */
    submit: async (code: string, input: Json = {}, more: Json = {}): Promise<string> => {
      // A busy machine's engine takes its time.
      const body = { code, input_data: input, startup_timeout: 600, ...more };
      const { status, text, json } = await send("POST", "/execute/async", body);
      if (status !== 202) throw new Error(text);
      return json["job_id"] as string;
    },
    record,
    /** Resolves once the code of this attempt runs. */
    untilBegun: (id: string, attempt = 1): Promise<void> =>
      waitUntil(`attempt ${attempt} of ${id} begins`, async () => (await lastBegun(id)) >= attempt),
    untilStatus: (id: string, status: string): Promise<void> =>
      waitUntil(`${id} is ${status}`, async () => (await record(id)).status === status),
    /** The record, once the job has ended. */
    ended: async (id: string): Promise<ExecutionRecord> => {
      await waitUntil(`${id} ends`, async () => (await record(id)).ended_at !== null);
      return record(id);
    },
  };
}

/** Expects that a job which prints its run's name and leaves it in `run.txt` shows one run, and no other. */
export async function expectOneRun({ url, ended }: TestService, id: string) {
  const record = await ended(id);
  expect(record).toMatchObject({ status: "succeeded", artifacts: [{ name: "run.txt" }] });
  const run = await (await fetch(`${url}/jobs/${id}/artifacts/run.txt`)).text();
  expect(record.stdout).toBe(`${run}\n`);
  return { record, run };
}

/** The service of the tests that run. */
export let service: TestService;

/** Gives all tests of a file one service with an agent. */
export function useTestService(options: ServiceOptions = {}, agent: Variables = {}): void {
  beforeAll(async () => {
    service = await startTestService(options);
    await service.startAgent("agent", agent);
  });
  afterAll(() => service?.[Symbol.asyncDispose]());
}

/** Variables of an agent, by where it runs its jobs and sessions. */
export const places = {
  forks: { AIRLOCK_CONTAINER_BACKEND: "zygote" },
  containers: { AIRLOCK_CONTAINER_BACKEND: "engine" },
  gVisor: { AIRLOCK_CONTAINER_BACKEND: "engine", AIRLOCK_CONTAINER_RUNTIME: "runsc" },
} satisfies Record<string, Variables>;

export type Place = keyof typeof places;

/** The places of rows that the lab repeats under gVisor. */
export const placesOfTier: readonly Place[] = isLab ? ["gVisor"] : ["forks", "containers"];

/**
 * An agent's settings for PyPI, Debian's and npm's registries, also where a proxy of this machine's has a private address
 * and its own certificates.
 */
export const fromPypi = {
  AIRLOCK_PIP_HOSTS: "pypi.org,files.pythonhosted.org,deb.debian.org,registry.npmjs.org",
  AIRLOCK_PIP_CA_FILE: process.env["SSL_CERT_FILE"] ?? "/etc/ssl/certs/ca-certificates.crt",
};

/** Builds the image of a job type; the answer is that of the API, which may be a refusal. */
export async function build(
  service: TestService,
  jobType: string,
  tag?: string,
): Promise<BuildResult> {
  const query = tag === undefined ? "" : `?version_tag=${tag}`;
  return (await service.send<BuildResult>("POST", `/job-types/${jobType}/build${query}`)).json;
}

/** Builds an image for the first time, even if that takes longer than a client waits for an answer. */
export async function buildFirst(service: TestService, jobType: string): Promise<Build> {
  void build(service, jobType).catch(() => {});
  for (;;) {
    await sleep(1000);
    const last = await lastBuild(service, jobType);
    if (last.status === "failed") throw new Error(JSON.stringify(last));
    if (last.status === "built") return last;
  }
}

export async function lastBuild(service: TestService, jobType: string): Promise<Build> {
  return (await service.send<Build>("GET", `/job-types/${jobType}/build`)).json;
}

export async function readJobType(service: TestService, jobType: string): Promise<JobTypeView> {
  return (await service.send<JobTypeView>("GET", `/job-types/${jobType}`)).json;
}

const mib = 1024 * 1024;
/** What two streams of 100 MiB may take, less than held whole: V8 collects buffers each time that 64 MiB more are there. */
export const flatBytes = 160 * mib;

/** Writes 100 MiB that no two offsets share, and prints their SHA-256. */
const writesMuch = `
import hashlib
sha256 = hashlib.sha256()
with open("/output/much.bin", "wb") as file:
    for n in range(100 * 1024):
        block = hashlib.sha512(n.to_bytes(8, "big")).digest() * 16
        sha256.update(block)
        file.write(block)
print(sha256.hexdigest())
`;

/** The file that one job left. */
export interface Stored {
  readonly url: string;
  readonly jobId: string;
  readonly sha256: string;
}

export async function run(service: TestService, code: string) {
  const result = await service.execute(code, { timeout: 60 });
  expect(result).toMatchObject({ success: true });
  return result as { job_id: string; stdout: string };
}

export async function store(service: TestService): Promise<Stored> {
  const { job_id, stdout } = await run(service, writesMuch);
  return { url: service.url, jobId: job_id, sha256: stdout.trim() };
}

/** Two at once, each with a file of its own. */
export function storeTwo(service: TestService): Promise<Stored[]> {
  return Promise.all([store(service), store(service)]);
}

export async function download({ url, jobId }: Stored, headers = {}): Promise<IncomingMessage> {
  const request = get(`${url}/jobs/${jobId}/artifacts/much.bin`, { headers, agent: false });
  const [response] = (await once(request, "response")) as [IncomingMessage];
  return response;
}

async function hashOf(stream: AsyncIterable<Buffer>): Promise<{ sha256: string; size: number }> {
  const hash = createHash("sha256");
  let size = 0;
  for await (const chunk of stream) {
    hash.update(chunk);
    size += chunk.length;
  }
  return { sha256: hash.digest("hex"), size };
}

export async function arrivesWhole(stored: Stored): Promise<void> {
  const whole = await hashOf(await download(stored));
  expect(whole).toEqual({ sha256: stored.sha256, size: 100 * mib });
  const part = await download(stored, { Range: `bytes=${50 * mib}-${90 * mib - 1}` });
  expect(part.statusCode).toBe(206);
  expect((await hashOf(part)).size).toBe(40 * mib);
}

/** Long enough for a busy machine to renew in, short enough to wait for the end of. */
export const leaseTtlS = 6;

/** AIRLOCK_ variables of an API for tests that wait for the end of a lease. */
export const shortLeases = {
  AIRLOCK_LEASE_TTL_S: String(leaseTtlS),
  AIRLOCK_LIVENESS_S: "4",
  AIRLOCK_POLL_WAIT_S: "2",
};
