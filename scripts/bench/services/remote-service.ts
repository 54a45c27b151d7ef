import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Agent } from "undici";
import type { Engine } from "../../../agent/engine/engine.ts";
import { startSqld } from "../../../api/testing/start-sqld.ts";
import { startWorkerd } from "../../../api/testing/start-workerd.ts";
import { startChild } from "../../start/child.ts";
import { type Client, clientOf } from "./client.ts";
import { withoutAirlock } from "./service.ts";

const AGENT_GRACE_MS = 20_000;

/** A service over a libSQL server (sqld), with one agent here. */
export type RemoteService = Client & AsyncDisposable & { readonly url: string };

/** What its API is started with. */
type Start = (
  vars: Record<string, string>,
  started: AsyncDisposableStack,
) => Promise<{ readonly url: string; readonly agentsUrl: string }>;

/** Starts what wrangler.toml deploys in workerd. */
export function startWorkerService(engine: Engine, dockerHost: string): Promise<RemoteService> {
  return startRemote(engine, dockerHost, async (vars, started) => {
    const { url } = started.adopt(await startWorkerd(vars, true), (api) => api.close());
    return { url, agentsUrl: url };
  });
}

/** Starts two API processes. The agent uses one, clients use the other. */
export function startProcesses(engine: Engine, dockerHost: string): Promise<RemoteService> {
  return startRemote(engine, dockerHost, async (vars, started) => {
    const folder = mkdtempSync(join(tmpdir(), "airlock-bench-processes-"));
    started.defer(() => rmSync(folder, { recursive: true, force: true }));
    const sqld = started.adopt(await startSqld(join(folder, "db")), (sqld) => sqld.close());
    const start = async (): Promise<string> => {
      const api = startChild("API", "api/node.ts", {
        ...process.env,
        ...withoutAirlock(process.env),
        ...vars,
        AIRLOCK_PORT: "0",
        AIRLOCK_DATA_DIR: folder,
        AIRLOCK_DATABASE_URL: sqld.url,
      });
      started.defer(() => api.stop(AGENT_GRACE_MS));
      return (await api.ready).url;
    };
    return { url: await start(), agentsUrl: await start() };
  });
}

async function startRemote(
  engine: Engine,
  dockerHost: string,
  startApis: Start,
): Promise<RemoteService> {
  await using started = new AsyncDisposableStack();
  const [token, agentName] = [randomUUID(), `bench-${process.pid}-remote`];
  const spool = mkdtempSync(join(tmpdir(), "airlock-bench-spool-"));
  started.defer(() => rmSync(spool, { recursive: true, force: true }));
  const vars = {
    AIRLOCK_AGENT_TOKENS: token,
    AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
    AIRLOCK_LOG_LEVEL: "warning",
  };
  const { url, agentsUrl } = await startApis(vars, started);
  const agent = startChild("agent", "agent/main.ts", {
    ...process.env,
    ...withoutAirlock(process.env),
    AIRLOCK_API_URL: agentsUrl,
    AIRLOCK_AGENT_TOKEN: token,
    AIRLOCK_AGENT_NAME: agentName,
    AIRLOCK_DOCKER_HOST: dockerHost,
    AIRLOCK_SPOOL_DIR: spool,
    AIRLOCK_LOG_LEVEL: "warning",
  });
  started.defer(() => agent.stop(AGENT_GRACE_MS));
  await agent.ready;
  const http = started.adopt(new Agent({ keepAliveTimeout: 60_000 }), (http) => http.destroy());
  const all = started.move();
  return {
    url,
    ...clientOf(url, engine, agentName, http),
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}
