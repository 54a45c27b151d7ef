import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { classify } from "../output/classify.ts";
import { openSandbox } from "../../container/open-sandbox.ts";
import type { RunReport, SandboxJob, SandboxSpec } from "../types.ts";
import { testEngine } from "./engine.ts";
import { specWith } from "./report.ts";

/** A container for several jobs; disposing of it removes it. */
export interface ReusedSandbox extends AsyncDisposable {
  readonly id: string;
  readonly run: (code: string, job?: Partial<SandboxJob>) => Promise<ReusedRun>;
  readonly rearm: () => Promise<boolean>;
  readonly jobsLeft: () => number;
}

export interface ReusedRun {
  readonly report: RunReport;
  /** Status, error type and exit code, such as "failed value_error 1". */
  readonly end: string;
  readonly out: string;
  readonly err: string;
}

export async function openReused(spec: Partial<SandboxSpec> = {}): Promise<ReusedSandbox> {
  const { engine, image } = await testEngine();
  const whole = specWith({ image, reuse: 100, memoryBytes: 256 * 1024 ** 2, ...spec });
  const sandbox = await openSandbox(engine, whole, AbortSignal.timeout(60_000));
  const spoolDir = mkdtempSync(join(tmpdir(), "airlock-reuse-"));
  return {
    id: sandbox.containerId,
    async run(code, job = {}) {
      const caps = { streamBytes: 1_000_000, artifactBytes: 50_000_000 };
      const report = await sandbox.run(
        { code, inputJson: "{}", timeoutMs: 60_000, caps, ...job },
        { signal: new AbortController().signal, spoolDir },
      );
      const { status, error, exitCode } = classify(report);
      return {
        report,
        end: `${status} ${error?.type ?? "-"} ${exitCode}`,
        out: Buffer.from(report.stdout).toString("utf8"),
        err: Buffer.from(report.stderr).toString("utf8"),
      };
    },
    rearm: () => sandbox.rearm(),
    jobsLeft: () => sandbox.jobsLeft(),
    async [Symbol.asyncDispose]() {
      // Under gVisor a busy engine may take longer to end a fork bomb than one wait lasts: ask again.
      await sandbox.close().catch(() => sandbox.close());
      rmSync(spoolDir, { recursive: true });
    },
  };
}
