import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Agent } from "undici";
import type { Engine } from "../../../agent/engine/engine.ts";
import { childrenOf } from "../../testing/children-of.ts";
import { startProcess } from "../../testing/start-process.ts";
import { type Client, clientOf } from "./client.ts";

export type ServiceOptions = {
  /** Configuration keys, as AIRLOCK_<KEY> in lower case without the prefix. */
  readonly config?: Readonly<Record<string, string | number | boolean>>;
  /** Tables of job types, as in airlock.toml. */
  readonly toml?: string;
  readonly env?: Readonly<Record<string, string>>;
};

export type Service = AsyncDisposable &
  Client & {
    readonly url: string;
    readonly agentName: string;
    /** Process ids by the entry point. */
    readonly pids: () => { readonly api: number; readonly agent: number };
    readonly log: () => string;
  };

let count = 0;

/** Starts what `npm start` starts, with data, port and agent of its own. */
export async function startService(
  engine: Engine,
  dockerHost: string,
  { config = {}, toml = "", env = {} }: ServiceOptions = {},
): Promise<Service> {
  const folder = mkdtempSync(join(tmpdir(), "airlock-bench-"));
  const file = join(folder, "airlock.toml");
  writeFileSync(file, toml);
  const agentName = `bench-${process.pid}-${(count += 1)}`;
  const started = startProcess(process.cwd(), {
    ...withoutAirlock(process.env),
    AIRLOCK_CONFIG: file,
    AIRLOCK_DATA_DIR: join(folder, "data"),
    AIRLOCK_SPOOL_DIR: join(folder, "spool"),
    AIRLOCK_PORT: "0",
    AIRLOCK_DOCKER_HOST: dockerHost,
    AIRLOCK_AGENT_NAME: agentName,
    AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
    ...Object.fromEntries(
      Object.entries(config).map(([key, value]) => [`AIRLOCK_${key.toUpperCase()}`, String(value)]),
    ),
    ...env,
  });
  const http = new Agent({ keepAliveTimeout: 60_000 });

  const end = async (): Promise<void> => {
    await http.destroy();
    started.signal("SIGTERM");
    await started.exited;
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    await started.printed("documented at");
  } catch (error) {
    await end();
    throw error;
  }
  const url = /documented at (http:\S+)\/docs;/.exec(started.output())?.[1] ?? "";

  return {
    url,
    agentName,
    log: () => started.output(),
    ...clientOf(url, engine, agentName, http),
    pids: () => ({
      api: childRunning(started.pid, "api/node.ts"),
      agent: childRunning(started.pid, "agent/main.ts"),
    }),
    [Symbol.asyncDispose]: end,
  };
}

/** An empty value counts as unset. */
export function withoutAirlock(env: NodeJS.ProcessEnv): Record<string, string> {
  const names = Object.keys(env).filter((name) => name.startsWith("AIRLOCK_"));
  return Object.fromEntries(names.map((name) => [name, ""]));
}

function childRunning(parentPid: number, entry: string): number {
  const found = childrenOf(parentPid).find((pid) =>
    readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(entry),
  );
  if (found === undefined) throw new Error(`no process runs ${entry}`);
  return found;
}
