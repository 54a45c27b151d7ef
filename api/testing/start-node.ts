import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";

const entry = fileURLToPath(new URL("../node.ts", import.meta.url));

/** `api/node.ts` in a process of its own, with its own data, on a port of its choosing. */
export interface NodeProcess {
  url: string;
  databaseUrl: string;
  child: ChildProcess;
  /** Its exit code, once it has ended; null after a signal that it did not handle. */
  exited: Promise<number | null>;
  /** What it logged, once it has ended. */
  logged: Promise<string>;
  /** Kills it, and removes its data where they are its own. */
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

/** The same over a data folder that stays. */
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

/** Starts the API where it is expected to refuse: its exit code and what it says. */
export async function refusedStart(
  vars: Record<string, string>,
): Promise<{ code: number | null; said: string }> {
  const { child, stderr } = forkNode(vars);
  const [code] = (await once(child, "exit")) as [number | null];
  return { code, said: await stderr };
}

function forkNode(vars: Record<string, string>): { child: ChildProcess; stderr: Promise<string> } {
  const child = fork(entry, [], {
    // As scripts/run starts it.
    execArgv: ["--max-semi-space-size=8", "--import", "tsx"],
    stdio: ["ignore", "ignore", "pipe", "ipc"],
    env: { PATH: process.env["PATH"], ...vars },
  });
  return { child, stderr: text(child.stderr!) };
}
