import { spawn } from "node:child_process";
import { createHash, randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import { hostPython, type Python } from "../../scripts/setup/find-python.ts";
import { atEndOfFile, tempFolder } from "../../shared/testing/test-file.ts";
import type { Engine } from "../engine/engine.ts";
import { type Bytecode, pid1Command, supervisorProgram } from "../python/program.ts";
import { openConversation } from "../sandbox/conversation.ts";
import type { Link } from "../sandbox/frames.ts";
import type {
  InputFile,
  PackageRequest,
  RunOptions,
  SandboxCall,
  SandboxJob,
} from "../sandbox/job.ts";
import { labels, type Sandbox, type SandboxSpec } from "../sandbox/sandbox.ts";
import { classify, type RunReport, type Verdict } from "../sandbox/verdict.ts";
import { openOn, openWithFiles, openWithPackages, sandboxRuntime } from "./backend.ts";
import { specWith, type testEngine } from "./engine.ts";

export interface Settings {
  /** Label of the container, which tells it from others. */
  readonly agentName?: string;
  readonly spec?: Partial<SandboxSpec>;
  /** "engine" or "zygote"; by default that of the tier. */
  readonly backend?: string;
  /** Installed before the job. */
  readonly packages?: PackageRequest;
  readonly installSignal?: AbortSignal;
  /** Content by name below /input. */
  readonly inputFiles?: Readonly<Record<string, string | Uint8Array>>;
  readonly job?: Partial<SandboxJob>;
  readonly options?: Partial<RunOptions>;
}

export interface Run {
  readonly report: RunReport;
  readonly verdict: Verdict;
  /** Status, error type and exit code, such as "failed value_error 1". */
  readonly end: string;
  readonly out: string;
  readonly err: string;
  readonly files: Readonly<Record<string, string>>;
  /** Containers of the run that the engine still lists after it. */
  readonly left: number;
}

/** Runs code in its own container, from start to removal. */
export async function runCode(
  { engine, image }: { engine: Engine; image: string },
  code: string,
  settings: Settings = {},
): Promise<Run> {
  const agentId = randomUUID();
  const owner = { agentId, agentName: settings.agentName ?? "sandbox-tests", leaseId: null };
  const spec = specWith({ image, labels: owner, ...settings.spec });
  const spoolDir = mkdtempSync(join(tmpdir(), "airlock-run-"));
  const { packages, installSignal = AbortSignal.timeout(60_000) } = settings;
  const place = { engine, image };
  const limit = AbortSignal.timeout(60_000);
  const inputFiles = writeFiles(spoolDir, settings.inputFiles ?? {});
  const job = jobOf(code, settings.job);
  const open = (): Promise<Sandbox> => {
    if (packages) return openWithPackages(place, spec, packages, limit, installSignal);
    if (inputFiles.length > 0) return openWithFiles(place, spec, inputFiles, limit);
    return openOn(place, spec, limit, settings.backend, job);
  };
  const sandbox = await open();
  try {
    const options = { spoolDir, ...settings.options };
    const report = await runIn(sandbox, job, { options });
    const files = report.artifacts.map(({ name, path }) => [name, readFileSync(path, "utf8")]);
    await sandbox.close();
    const left = await engine.list(labels.agentId, agentId, AbortSignal.timeout(60_000));
    const verdict = classify(report);
    return {
      report,
      verdict,
      end: `${verdict.status} ${verdict.error?.type ?? "-"} ${verdict.exitCode}`,
      out: Buffer.from(report.stdout).toString("utf8"),
      err: Buffer.from(report.stderr).toString("utf8"),
      files: Object.fromEntries(files) as Record<string, string>,
      left: left.length,
    };
  } finally {
    await sandbox.close();
    rmSync(spoolDir, { recursive: true });
  }
}

/** Runs code, or a job that was sent ahead, in a sandbox that is open, or in the conversation of one. */
export function runIn(
  sandbox: Pick<Sandbox, "run">,
  code: SandboxJob["code"] | SandboxJob,
  { job, options }: Pick<Settings, "job" | "options"> = {},
): Promise<RunReport> {
  return sandbox.run(isJob(code) ? code : jobOf(code, job), {
    signal: new AbortController().signal,
    spoolDir: options?.spoolDir ?? tempFolder(),
    ...options,
  });
}

const isJob = (code: SandboxJob["code"] | SandboxJob): code is SandboxJob =>
  typeof code === "object" && "inputJson" in code;

function jobOf(code: SandboxJob["code"], more: Partial<SandboxJob> = {}): SandboxJob {
  const caps = { streamBytes: 1_000_000, artifactBytes: 50_000_000 };
  return { code, inputJson: "{}", timeoutMs: 60_000, caps, ...more };
}

/** The agent's files with these contents. */
export function writeFiles(
  folder: string,
  contents: Readonly<Record<string, string | Uint8Array>>,
): InputFile[] {
  return Object.entries(contents).map(([name, content], n) => {
    const path = join(folder, `input-${n}`);
    writeFileSync(path, content);
    const sha256 = createHash("sha256").update(content).digest("hex");
    return { name, path, sha256, sizeBytes: statSync(path).size };
  });
}

/** Where a supervisor starts: its Python, by default the system's, and what it is told. */
interface Start extends HostOptions {
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

interface HostSettings extends Partial<Omit<SandboxJob, "code" | "caps">>, Start {
  readonly caps?: Partial<SandboxJob["caps"]>;
  readonly options?: Partial<RunOptions>;
}

/** Runs code under its own supervisor, for at most 20 s by default. */
export async function runOnHost(code: SandboxJob["code"], settings: HostSettings = {}) {
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

const namespace = fileURLToPath(new URL("programs/namespace.sh", import.meta.url));

/** A command that runs as PID 1 of namespaces of its own; see namespace.sh. */
export function inNamespace(python: Python, command: readonly string[]): string[] {
  return ["sh", namespace, python.folder, ...command];
}

interface HostLink extends Link {
  /** Resolves when the supervisor and all its processes have ended. */
  readonly ended: Promise<unknown>;
}

export interface HostOptions {
  readonly preload?: readonly string[] | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly bytecode?: Bytecode | null | undefined;
}

/** A supervisor that runs without an engine. Needs root. */
function startOnHost(
  python: Python,
  { preload = [], env = {}, bytecode = null }: HostOptions = {},
): HostLink {
  const assignments = Object.entries(env).map(([name, value]) => `${name}=${value}`);
  const command = ["env", ...assignments, ...pid1Command];
  const [file = "", ...args] = inNamespace(python, command);
  const child = spawn(file, args, { stdio: "pipe" });
  let stderr = "";
  child.stderr.on("data", (bytes: Buffer) => (stderr = (stderr + bytes.toString()).slice(-4096)));
  child.stdin.on("error", () => {});
  child.stdin.write(supervisorProgram(preload, bytecode));
  return {
    input: child.stdin,
    output: child.stdout,
    ended: once(child, "exit"),
    diagnostics: () => stderr,
    destroy() {
      child.stdin.destroy();
      child.stdout.destroy();
    },
  };
}

interface Call extends Partial<SandboxJob>, Partial<SandboxCall> {}

/** What a test looks at after a call. */
interface Called {
  readonly end: string;
  readonly message: string | undefined;
  readonly out: string;
  readonly err: string;
  /** Texts of the items. */
  readonly shown: readonly (string | undefined)[];
  readonly files: Readonly<Record<string, string>>;
  readonly report: RunReport;
}

/** Begins a session in a sandbox, or in a conversation with a supervisor. */
function beginSession(
  sandbox: Pick<Sandbox, "beginSession" | "run">,
  env: Readonly<Record<string, string>> = {},
) {
  let number = 0;
  sandbox.beginSession(env);
  return async (
    code: string,
    {
      context = "default",
      contexts = [],
      restart = false,
      fetch = [],
      onlyFetches,
      ...more
    }: Call = {},
    options: Partial<RunOptions> = {},
  ): Promise<Called> => {
    const { env: own = {}, files: brought = [], ...job } = more;
    number += 1;
    const call = {
      number,
      context,
      contexts,
      restart,
      fetch,
      onlyFetches,
      env: own,
      files: brought,
    };
    const report = await runIn(sandbox, code, {
      job: { results: true, timeoutMs: 20_000, ...job, call },
      options,
    });
    const { status, error, exitCode } = classify(report);
    return {
      end: `${status} ${error?.type ?? "-"} ${exitCode}`,
      message: error?.message,
      out: text(report.stdout),
      err: text(report.stderr),
      shown: report.items.map(({ data }) => data["text/plain"]),
      files: files(report),
      report,
    };
  };
}

/** A session of a supervisor on this machine, which ends with the test file. */
export async function openSessionOnHost({
  session = {},
  ...start
}: Start & { session?: Record<string, string> } = {}) {
  const { link, conversation } = await openOnHost(start);
  return { link, conversation, call: beginSession(conversation, session) };
}

/** A session in a sandbox of this tier's backend, which ends with the test if it is not disposed of. */
export async function openSession(
  place: Awaited<ReturnType<typeof testEngine>>,
  spec: Partial<SandboxSpec> = {},
  {
    env = {},
    agentName = "sandbox-tests",
    backend,
  }: { env?: Record<string, string>; agentName?: string; backend?: string } = {},
) {
  const owner = { agentId: randomUUID(), agentName, leaseId: null };
  const own = specWith({ image: place.image, labels: owner, runtime: sandboxRuntime, ...spec });
  const sandbox = await openOn(place, own, AbortSignal.timeout(60_000), backend);
  onTestFinished(() => sandbox.close());
  const close = () => sandbox.close();
  return { sandbox, call: beginSession(sandbox, env), [Symbol.asyncDispose]: close };
}
