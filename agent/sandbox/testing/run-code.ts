import { createHash, randomUUID } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { tempFolder } from "../../../shared/testing/temp-folder.ts";
import { classify } from "../output/classify.ts";
import type { Engine } from "../../engine/engine.ts";
import type { PackageRequest } from "../package-request.ts";
import { labels } from "../labels.ts";
import { openOn, openWithFiles, openWithPackages } from "./backend.ts";
import type { InputFile, RunOptions, SandboxJob } from "../job.ts";
import type { RunReport, Verdict } from "../report.ts";
import type { Sandbox } from "../sandbox.ts";
import type { SandboxSpec } from "../spec.ts";
import { specWith } from "./report.ts";

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
