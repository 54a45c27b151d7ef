import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, request } from "undici";
import type { Engine } from "../../agent/engine/engine.ts";
import { labels } from "../../agent/sandbox/labels.ts";
import type { SyncResult } from "../../shared/wire/execution.ts";
import { childrenOf } from "../testing/children-of.ts";
import { startProcess } from "../testing/start-process.ts";
import { HELLO } from "./bare.ts";

export type ServiceOptions = {
  /** Configuration keys, as AIRLOCK_<KEY> in lower case without the prefix. */
  readonly config?: Readonly<Record<string, string | number | boolean>>;
  /** Tables of job types, as in airlock.toml. */
  readonly toml?: string;
};

type Method = "GET" | "POST" | "DELETE";

/** A running service with one agent, as a row uses it. */
export type Service = AsyncDisposable & {
  readonly url: string;
  /** What the containers of the agent are labelled with. */
  readonly agentName: string;
  /** Process ids by the entry point. */
  readonly pids: () => { readonly api: number; readonly agent: number };
  /** Sends a request, and returns what the answer says. Throws Error on one that is no success. */
  readonly send: <T>(method: Method, path: string, body?: object) => Promise<T>;
  /** Runs code by POST /execute. Throws Error unless it succeeded. */
  readonly execute: (code: string, more?: object) => Promise<SyncResult>;
  /** Runs hello so often, a few at once, so that both processes have compiled what they run. */
  readonly warmUp: (times: number, more?: object) => Promise<void>;
  /** Waits until the pool has been filled again, and until nothing has changed for a while. */
  readonly settled: () => Promise<void>;
};

const WARM_UP_AT_ONCE = 4;
const LOOK_MS = 25;
/** Longer than a refill waits before it begins. */
const QUIET_MS = 200;
const SETTLE_LIMIT_MS = 20_000;

let count = 0;

/** Starts what `npm start` starts, with data, port and agent of its own. */
export async function startService(
  engine: Engine,
  dockerHost: string,
  { config = {}, toml = "" }: ServiceOptions = {},
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
  });
  const dispatcher = new Agent({ keepAliveTimeout: 60_000 });

  const end = async (): Promise<void> => {
    await dispatcher.destroy();
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

  const send: Service["send"] = async <T>(method: Method, path: string, body?: object) => {
    const answer = await request(`${url}${path}`, {
      dispatcher,
      method,
      headers: { "content-type": "application/json" },
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await answer.body.text();
    if (answer.statusCode >= 300) {
      throw new Error(`${method} ${path}: ${answer.statusCode} ${text}`);
    }
    return (text === "" ? undefined : JSON.parse(text)) as T;
  };
  const execute: Service["execute"] = async (code, more = {}) => {
    const result = await send<SyncResult>("POST", "/execute", { code, ...more });
    if (!result.success) throw new Error(`a job failed: ${JSON.stringify(result)}`);
    return result;
  };
  /** The containers of the agent, by id and state. */
  const containers = async (): Promise<string> => {
    const found = await engine.list(labels.agentName, agentName, AbortSignal.timeout(10_000));
    const states = found.map(({ id, isRunning }) => `${id} ${isRunning ? "running" : "other"}`);
    return states.sort().join("\n");
  };

  return {
    url,
    agentName,
    send,
    execute,
    pids: () => ({
      api: childRunning(started.pid, "api/node.ts"),
      agent: childRunning(started.pid, "agent/main.ts"),
    }),
    warmUp: async (times, more) => {
      const left = Array.from({ length: times }).values();
      const work = async (): Promise<void> => {
        for (const _ of left) await execute(HELLO, more);
      };
      await Promise.all(Array.from({ length: WARM_UP_AT_ONCE }, work));
    },
    settled: async () => {
      const limit = performance.now() + SETTLE_LIMIT_MS;
      let before = await containers();
      for (let quietSince = performance.now(); performance.now() < quietSince + QUIET_MS;) {
        if (performance.now() > limit) throw new Error(`the pool never came to rest:\n${before}`);
        await sleep(LOOK_MS);
        const now = await containers();
        if (now !== before || now.includes("other")) quietSince = performance.now();
        before = now;
      }
    },
    [Symbol.asyncDispose]: end,
  };
}

/** An empty value counts as unset. */
function withoutAirlock(env: NodeJS.ProcessEnv): Record<string, string> {
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
