import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createClient, type Client } from "@libsql/client";
import {
  imagesOf,
  removeContainersOf,
  removeImages,
} from "../../agent/sandbox/testing/raw-engine.ts";
import { type AgentProcess, startAgent } from "../../agent/testing/agent-process.ts";
import { reservePort } from "../../api/testing/reserve-port.ts";
import { type NodeProcess, startNodeIn } from "../../api/testing/start-node.ts";
import { type Acknowledged, checkLedger, type Ledger, startAudit } from "./ledger.ts";
import { type ServiceCalls, serviceCalls } from "./service-calls.ts";

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
export type TestService<Api extends RunningApi = RunningApi> = AsyncDisposable &
  ServiceCalls & {
    /** No other service has it: the names of its agents and images begin with it. */
    readonly name: string;
    readonly folder: string;
    readonly url: string;
    readonly token: string;
    readonly db: Client;
    /** The API that runs now. */
    readonly api: () => Api;
    readonly startApi: () => Promise<void>;
    /** Starts an agent, with a command that enters its host; resolves once it has polled. */
    readonly startAgent: (
      name?: string,
      vars?: Variables,
      enter?: readonly string[],
    ) => Promise<TestAgent>;
    /** The books, once nothing runs any more. */
    readonly ledger: (acknowledged: readonly Acknowledged[]) => Promise<Ledger>;
  };

/** An agent under its whole name. */
export type TestAgent = AgentProcess & { readonly name: string };

type RunningApi = {
  readonly url: string;
  readonly databaseUrl: string;
  close(): Promise<unknown>;
};

/** With the API on Node over a file, at an address that stays. */
export async function startTestService(
  options: ServiceOptions = {},
): Promise<TestService<NodeProcess>> {
  const { folder = makeFolder() } = options;
  const port = await reservePort(options.api?.["AIRLOCK_HOST"]);
  const start = (vars: Variables) => startNodeIn(folder, { AIRLOCK_PORT: String(port), ...vars });
  return startTestServiceOn(start, { ...options, folder });
}

/** With an API that `start` starts. */
export async function startTestServiceOn<Api extends RunningApi>(
  start: (vars: Record<string, string>) => Promise<Api>,
  { folder = makeFolder(), key, api: apiVars = {}, agents: agentVars = {} }: ServiceOptions = {},
): Promise<TestService<Api>> {
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
    name,
    folder,
    token,
    db,
    get url() {
      return api.url;
    },
    api: () => api,
    startApi: async () => {
      api = await startNext();
    },
    startAgent: async (own = "agent", vars = {}, enter = []) => {
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
      const agent = { ...startAgent(env, enter), name: agentName };
      agents.push(agent);
      await agent.ready;
      return agent;
    },
    ...serviceCalls(() => api.url, db, key),
    ledger: (acknowledged) => checkLedger(db, acknowledged),
    [Symbol.asyncDispose]: async () => {
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
