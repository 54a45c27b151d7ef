import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Agent } from "undici";
import type { Engine } from "../../agent/container/engine.ts";
import { startWorkerd } from "../../api/testing/start-workerd.ts";
import { startChild } from "../start/child.ts";
import { type Client, clientOf } from "./client.ts";
import { withoutAirlock } from "./service.ts";

const AGENT_GRACE_MS = 20_000;

/** Starts what wrangler.toml deploys in workerd, over a libSQL server (sqld), with one agent here. */
export async function startWorkerService(
  engine: Engine,
  dockerHost: string,
): Promise<Client & AsyncDisposable> {
  await using started = new AsyncDisposableStack();
  const [token, agentName] = [randomUUID(), `bench-${process.pid}-worker`];
  const spool = mkdtempSync(join(tmpdir(), "airlock-bench-worker-"));
  started.defer(() => rmSync(spool, { recursive: true, force: true }));
  const vars = {
    AIRLOCK_AGENT_TOKENS: token,
    AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
    AIRLOCK_LOG_LEVEL: "warning",
  };
  const worker = started.adopt(await startWorkerd(vars, true), (api) => api.close());
  const agent = startChild("agent", "agent/main.ts", {
    ...process.env,
    ...withoutAirlock(process.env),
    AIRLOCK_API_URL: worker.url,
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
    ...clientOf(worker.url, engine, agentName, http),
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}
