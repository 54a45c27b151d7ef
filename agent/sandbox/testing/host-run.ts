import { readFileSync } from "node:fs";
import { atEndOfFile } from "../../../shared/testing/end-of-file.ts";
import { openConversation } from "../conversation/conversation.ts";
import type { RunOptions, SandboxJob } from "../job.ts";
import type { RunReport } from "../report.ts";
import { runIn } from "./run-code.ts";
import { type HostLink, type HostOptions, startOnHost } from "./host-link.ts";
import { hostPython, type Python } from "./find-python.ts";

/** Where a supervisor starts: its Python, by default the system's, and what it is told. */
export interface Start extends HostOptions {
  readonly python?: Python | undefined;
}

/** A supervisor on this machine, which ends with the test file. */
export function startForFile({ python = hostPython(), ...options }: Start = {}): HostLink {
  const link = startOnHost(python, options);
  atEndOfFile(() => link.destroy());
  return link;
}

/** The same with a conversation. */
export async function openOnHost(options: Start = {}) {
  const link = startForFile(options);
  return { link, conversation: await openConversation(link, AbortSignal.timeout(30_000)) };
}

interface Settings extends Partial<Omit<SandboxJob, "code" | "caps">>, Start {
  readonly caps?: Partial<SandboxJob["caps"]>;
  readonly options?: Partial<RunOptions>;
}

/** Runs code under its own supervisor, for at most 20 s by default. */
export async function runOnHost(code: SandboxJob["code"], settings: Settings = {}) {
  const { python, preload, env, bytecode, options = {}, caps: own, ...job } = settings;
  const { link, conversation } = await openOnHost({ python, preload, env, bytecode });
  const caps = { streamBytes: 1_000_000, artifactBytes: 10_000_000, ...own };
  const report = await runIn(conversation, code, {
    job: { timeoutMs: 20_000, ...job, caps },
    options,
  });
  link.destroy();
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
