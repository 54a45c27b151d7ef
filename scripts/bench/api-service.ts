import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Pool } from "undici";
import { sourceFlags } from "../../shared/testing/program.ts";
import { cpuMsOf } from "./proc.ts";

const CLIENT_KEYS = Array.from({ length: 4 }, (_, i) => `bench-client-key-0123456789-${i}`);
const AGENT_TOKEN = "bench-agent-token-0123456789";
const CONNECTIONS = 64;

const entry = fileURLToPath(new URL("../../api/node.ts", import.meta.url));
const meter = new URL("stall-meter.ts", import.meta.url).href;

export type Answer = { readonly status: number; readonly text: string };

/** The API alone, as `npm run api` runs it: keys on, durable, rate limit off, 64 connections to it. */
export type ApiService = AsyncDisposable & {
  readonly url: string;
  /** Sends by one of four clients' keys. Throws Error on an answer that is no success. */
  readonly send: (
    method: "GET" | "POST",
    path: string,
    body?: object | string,
    client?: number,
  ) => Promise<Answer>;
  /** CPU time used so far, in ms. */
  readonly cpuMs: () => number;
  /** The longest that its event loop stood still since this was last asked, in ms. */
  readonly worstStallMs: () => Promise<number>;
};

/** Starts it on an empty database file. */
export async function startApi(): Promise<ApiService> {
  const folder = mkdtempSync(join(tmpdir(), "airlock-bench-api-"));
  const child = fork(entry, [], {
    execArgv: ["--max-semi-space-size=8", ...sourceFlags, "--import", meter],
    stdio: ["ignore", "ignore", "ignore", "ipc"],
    env: {
      PATH: process.env["PATH"],
      AIRLOCK_PORT: "0",
      AIRLOCK_DATA_DIR: folder,
      AIRLOCK_API_AUTH_ENABLED: "true",
      AIRLOCK_API_KEYS: CLIENT_KEYS.join(","),
      AIRLOCK_AGENT_TOKENS: AGENT_TOKEN,
      AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
      AIRLOCK_MAX_QUEUE_SIZE: "1000000",
    },
  });
  const exited = once(child, "exit");
  const answer = async <T>(): Promise<T> => ((await once(child, "message")) as [T])[0];
  const started = await Promise.race([answer<{ url: string }>(), exited.then(() => undefined)]);
  if (!started) throw new Error("the API did not start");
  const pool = new Pool(started.url, { connections: CONNECTIONS, keepAliveTimeout: 60_000 });

  return {
    url: started.url,
    send: async (method, path, body, client = 0) => {
      const isAgents = path.startsWith("/agent/");
      const key = CLIENT_KEYS[client % CLIENT_KEYS.length];
      const { statusCode, body: read } = await pool.request({
        method,
        path,
        headers: {
          authorization: `Bearer ${isAgents ? AGENT_TOKEN : key}`,
          "content-type": "application/json",
        },
        ...(body !== undefined && { body: typeof body === "string" ? body : JSON.stringify(body) }),
      });
      const text = await read.text();
      if (statusCode >= 300) throw new Error(`${method} ${path}: ${statusCode} ${text}`);
      return { status: statusCode, text };
    },
    cpuMs: () => cpuMsOf(child.pid!),
    worstStallMs: async () => {
      const told = answer<number>();
      child.send("stall?");
      return told;
    },
    [Symbol.asyncDispose]: async () => {
      await pool.destroy();
      child.kill("SIGTERM");
      await exited;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
