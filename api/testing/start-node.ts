import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { programOf } from "../../shared/testing/program.ts";

/** `api/node.ts` in a separate process with its own data, on a port that it picks. */
export interface NodeProcess {
  url: string;
  databaseUrl: string;
  child: ChildProcess;
  /** Its exit code when it has ended; null after a signal that it did not handle. */
  exited: Promise<number | null>;
  /** Its log, when it has ended. */
  logged: Promise<string>;
  /** Kills it, and removes its data unless the folder is the caller's. */
  close(): Promise<void>;
}

/** Starts the API on Node with these AIRLOCK_ variables. */
export async function startNode(vars: Record<string, string> = {}): Promise<NodeProcess> {
  const folder = mkdtempSync(join(tmpdir(), "airlock-node-"));
  const api = await startNodeIn(folder, vars);
  return {
    ...api,
    async close() {
      await api.close();
      rmSync(folder, { recursive: true });
    },
  };
}

/** The same with a data folder that stays. */
export async function startNodeIn(
  folder: string,
  vars: Record<string, string> = {},
): Promise<NodeProcess> {
  const { child, stderr } = forkNode({
    AIRLOCK_PORT: "0",
    AIRLOCK_DATA_DIR: folder,
    AIRLOCK_LOG_LEVEL: "error",
    ...vars,
  });
  const exited = once(child, "exit").then(([code]) => code as number | null);
  const first = await Promise.race([once(child, "message"), exited.then(() => undefined)]);
  if (!first) throw new Error(`the API did not start: ${await stderr}`);
  return {
    url: (first[0] as { url: string }).url,
    databaseUrl: vars["AIRLOCK_DATABASE_URL"] ?? `file:${join(folder, "airlock.db")}`,
    child,
    exited,
    logged: stderr,
    async close() {
      child.kill("SIGKILL");
      await exited;
    },
  };
}

/** Starts the API, which should refuse; returns its exit code and output. */
export async function refusedStart(
  vars: Record<string, string>,
): Promise<{ code: number | null; said: string }> {
  const { child, stderr } = forkNode(vars);
  const [code] = (await once(child, "exit")) as [number | null];
  return { code, said: await stderr };
}

function forkNode(vars: Record<string, string>): { child: ChildProcess; stderr: Promise<string> } {
  const { entry, flags } = programOf("api/node.ts");
  const child = fork(entry, {
    // As scripts/run starts it.
    execArgv: ["--max-semi-space-size=8", ...flags],
    stdio: ["ignore", "ignore", "pipe", "ipc"],
    env: { PATH: process.env["PATH"], ...vars },
  });
  return { child, stderr: text(child.stderr!) };
}
