import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createClient, type Client } from "@libsql/client";
import { removeContainersOf } from "../../agent/sandbox/testing/raw-engine.ts";
import { type AgentProcess, startAgent } from "../../agent/testing/agent-process.ts";
import { reservePort } from "../../api/testing/reserve-port.ts";
import { type NodeProcess, startNodeIn } from "../../api/testing/start-node.ts";
import type { ExecutionRecord } from "../../shared/wire/execution.ts";
import { jsonRequest } from "../command/json-request.ts";
import { type Acknowledged, checkLedger, type Ledger, startAudit } from "./ledger.ts";
import { waitUntil } from "../../shared/testing/wait-until.ts";

export type Json = Record<string, unknown>;
export type Reply = { readonly status: number; readonly headers: Headers; readonly json: Json };

type Variables = Readonly<Record<string, string>>;

/** An API on Node over a file, at an address that stays, and agents on the real engine. */
export type FaultWorld = AsyncDisposable & {
  readonly folder: string;
  readonly url: string;
  /** Of the API that runs now. */
  readonly api: () => NodeProcess;
  readonly startApi: () => Promise<void>;
  /** Starts an agent of this name, by a command that brings it to its host; resolves once it has polled. */
  readonly startAgent: (
    name: string,
    env?: Variables,
    enter?: readonly [string, ...string[]],
  ) => Promise<AgentProcess>;
  readonly send: (method: string, path: string, body?: Json) => Promise<Reply>;
  /** Submits code; resolves with its id once that is acknowledged. */
  readonly submit: (code: string, input?: Json, more?: Json) => Promise<string>;
  readonly record: (id: string) => Promise<ExecutionRecord>;
  /** Resolves once the code of this attempt runs. */
  readonly untilBegun: (id: string, attempt?: number) => Promise<void>;
  readonly untilStatus: (id: string, status: string) => Promise<void>;
  /** The record, once the job has ended. */
  readonly ended: (id: string) => Promise<ExecutionRecord>;
  readonly db: Client;
  /** The books, once nothing runs any more. */
  readonly ledger: (acknowledged: readonly Acknowledged[]) => Promise<Ledger>;
};

const token = "a-token-of-16-characters";

/** Long enough for a busy machine to renew in, short enough to wait for the end of. */
export const leaseTtlS = 6;

export async function startFaultWorld(
  vars: Variables = {},
  folder: string = mkdtempSync(join(tmpdir(), "airlock-faults-")),
): Promise<FaultWorld> {
  const host = vars["AIRLOCK_HOST"] ?? "127.0.0.1";
  const port = await reservePort(host);
  const url = `http://${host}:${port}`;
  const agents: AgentProcess[] = [];
  const names = new Set<string>();
  let api: NodeProcess;

  async function startApi(): Promise<void> {
    api = await startNodeIn(folder, {
      AIRLOCK_PORT: String(port),
      AIRLOCK_AGENT_TOKENS: token,
      AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
      AIRLOCK_ALLOW_UNAUTHENTICATED_NETWORK_ACCESS: "true",
      AIRLOCK_LEASE_TTL_S: String(leaseTtlS),
      AIRLOCK_LIVENESS_S: "4",
      AIRLOCK_POLL_WAIT_S: "2",
      ...vars,
    });
  }
  await startApi();
  const db = createClient({ url: `file:${folder}/airlock.db` });
  await startAudit(db);

  async function send(method: string, path: string, body?: Json): Promise<Reply> {
    const response = await fetch(url + path, jsonRequest(method, body));
    const json = (await response.json()) as Json;
    return { status: response.status, headers: response.headers, json };
  }

  const record = async (id: string) =>
    (await send("GET", `/executions/${id}?view=full`)).json as unknown as ExecutionRecord;

  async function codeBegan(id: string): Promise<number> {
    const { rows } = await db.execute({
      sql: "SELECT iif(code_started_at IS NULL, 0, attempt) AS n FROM executions WHERE id = ?",
      args: [id],
    });
    return Number(rows[0]?.["n"]);
  }

  return {
    folder,
    url,
    db,
    api: () => api,
    startApi,
    startAgent: async (name, env = {}, enter) => {
      const agent = startAgent(
        {
          AIRLOCK_API_URL: url,
          AIRLOCK_ALLOW_PLAIN_HTTP: "true",
          AIRLOCK_AGENT_TOKEN: token,
          AIRLOCK_AGENT_NAME: name,
          AIRLOCK_DOCKER_HOST: process.env["AIRLOCK_DOCKER_HOST"],
          AIRLOCK_SPOOL_DIR: join(folder, `spool-${name}`),
          AIRLOCK_WARM_POOL_SIZE: "0",
          AIRLOCK_LOG_LEVEL: "warning",
          ...env,
        },
        enter,
      );
      agents.push(agent);
      names.add(name);
      await agent.ready;
      return agent;
    },
    send,
    submit: async (code, input = {}, more = {}) => {
      // A busy machine's engine takes its time.
      const body = { code, input_data: input, startup_timeout: 600, ...more };
      const reply = await send("POST", "/execute/async", body);
      if (reply.status !== 202) throw new Error(JSON.stringify(reply.json));
      return reply.json["job_id"] as string;
    },
    record,
    untilBegun: async (id, attempt = 1) => {
      await waitUntil(
        `attempt ${attempt} of ${id} begins`,
        async () => (await codeBegan(id)) >= attempt,
      );
    },
    untilStatus: async (id, status) => {
      await waitUntil(`${id} is ${status}`, async () => (await record(id)).status === status);
    },
    ended: async (id) => {
      await waitUntil(`${id} ends`, async () => (await record(id)).ended_at !== null);
      return record(id);
    },
    ledger: (acknowledged) => checkLedger(db, acknowledged),
    [Symbol.asyncDispose]: async () => {
      for (const agent of agents) agent.process.kill("SIGKILL");
      await Promise.all(agents.map((agent) => agent.exit));
      db.close();
      await api.close();
      rmSync(folder, { recursive: true, force: true });
      for (const name of names) await removeContainersOf(name);
    },
  };
}

/** A name that no other test's agent has. */
export const agentName = (what: string): string => `${what}-${randomUUID()}`;
