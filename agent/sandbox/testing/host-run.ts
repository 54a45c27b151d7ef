import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";
import { openSession } from "../session/session.ts";
import type { RunOptions, RunReport, SandboxJob } from "../types.ts";
import { type HostLink, type HostOptions, startOnHost } from "./host-link.ts";
import { needsThroughout } from "../../../scripts/testing/needs.ts";
import { hostPython } from "./find-python.ts";

/** Holds what runs leave behind; it is removed at the end of the test file. */
export const spoolRoot = mkdtempSync(join(tmpdir(), "airlock-supervisor-"));
afterAll(() => rmSync(spoolRoot, { recursive: true }));

export const python = hostPython();

// A supervisor on this machine has its own namespaces.
needsThroughout("root", "ip");

/** Supervisors that end with the test file. */
export const started: HostLink[] = [];
afterAll(() => started.forEach((link) => link.destroy()));

/** A supervisor on this machine, and a session with it. */
export async function openOnHost(options: HostOptions = {}) {
  const link = startOnHost(python, options);
  started.push(link);
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
      spoolDir: mkdtempSync(join(spoolRoot, "run-")),
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
