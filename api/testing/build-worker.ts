import { execFile } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { WORKER_BUNDLE } from "../../shared/testing/program.ts";

export const root = fileURLToPath(new URL("../..", import.meta.url));

/** Keeps wrangler from using the network. */
Object.assign(process.env, {
  CLOUDFLARE_CF_FETCH_ENABLED: "false",
  WRANGLER_SEND_METRICS: "false",
  WRANGLER_HIDE_BANNER: "true",
  WRANGLER_LOG: "error",
});

export interface Built {
  folder: string;
  /** Output of wrangler about it. */
  said: string;
}

let building: Promise<Built> | undefined;

/** The files that `wrangler deploy` would send, built once per test run; outside one, once per process. */
export function built(): Promise<Built> {
  building ??= buildOnce(process.env[WORKER_BUNDLE] ?? ownFolder());
  return building;
}

function ownFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "airlock-bundle-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** The first process that asks builds; the others wait until it has, or has died. */
async function buildOnce(folder: string): Promise<Built> {
  const waiting = new Set<Socket>();
  // The kernel frees an abstract socket when its owner ends in any way.
  const path = `\0${folder}`;
  const lock = createServer((socket) => waiting.add(socket.on("error", () => {}))).listen({ path });
  try {
    await once(lock, "listening");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
    const waiter = connect({ path }).on("error", () => {});
    await new Promise((resolve) => waiter.once("close", resolve));
    return buildOnce(folder);
  }
  try {
    // It is written last.
    const said = join(folder, "said.txt");
    const bundle = join(folder, "bundle");
    if (!existsSync(said)) writeFileSync(said, await build(bundle));
    return { folder: bundle, said: readFileSync(said, "utf8") };
  } finally {
    lock.close();
    for (const socket of waiting) socket.destroy();
  }
}

async function build(folder: string): Promise<string> {
  const wrangler = createRequire(import.meta.url).resolve("wrangler/package.json");
  const cli = join(wrangler, "../wrangler-dist/cli.js");
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ["--no-warnings", cli, "deploy", "--dry-run", `--outdir=${folder}`],
    { cwd: root, env: { ...process.env, WRANGLER_LOG: "log" } },
  );
  return stdout;
}
