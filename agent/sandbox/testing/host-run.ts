import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { atEndOfFile } from "../../../shared/testing/end-of-file.ts";
import { openSession } from "../session/session.ts";
import type { RunOptions, SandboxJob } from "../job.ts";
import type { RunReport } from "../report.ts";
import { type HostLink, type HostOptions, startOnHost } from "./host-link.ts";
import { hostPython } from "./find-python.ts";

/** A folder for what a run leaves behind; it is removed at the end of the test file. */
export function spoolDir(): string {
  const folder = mkdtempSync(join(tmpdir(), "airlock-supervisor-"));
  atEndOfFile(() => rmSync(folder, { recursive: true }));
  return folder;
}

export const python = hostPython();

/** A supervisor on this machine, which ends with the test file. */
export function startForFile(options?: HostOptions): HostLink {
  const link = startOnHost(python, options);
  atEndOfFile(() => link.destroy());
  return link;
}

/** The same with a session. */
export async function openOnHost(options: HostOptions = {}) {
  const link = startForFile(options);
  return { link, session: await openSession(link, AbortSignal.timeout(30_000)) };
}

interface Settings extends Partial<Omit<SandboxJob, "code" | "caps">>, HostOptions {
  readonly caps?: Partial<SandboxJob["caps"]>;
  readonly options?: Partial<RunOptions>;
}

/** Runs code under its own supervisor, for at most 20 s by default. */
export async function runOnHost(code: string, settings: Settings = {}) {
  const { session } = await openOnHost(settings);
  const report = await session.run(
    {
      code,
      inputJson: settings.inputJson ?? "{}",
      timeoutMs: settings.timeoutMs ?? 20_000,
      caps: { streamBytes: 1_000_000, artifactBytes: 10_000_000, ...settings.caps },
    },
    {
      signal: new AbortController().signal,
      spoolDir: spoolDir(),
      ...settings.options,
    },
  );
  return { ...report, out: text(report.stdout), err: text(report.stderr) };
}

/** Takes the interpreter over 100 ms of CPU time to import; its start takes 20 ms. */
export const slowToImport = ["asyncio", "unittest.mock", "xmlrpc.server", "multiprocessing.pool"];

export function text(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("utf8");
}

export function files({ artifacts }: RunReport): Record<string, string> {
  return Object.fromEntries(artifacts.map(({ name, path }) => [name, readFileSync(path, "utf8")]));
}
