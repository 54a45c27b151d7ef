import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, vi } from "vitest";
import { classify } from "../output/classify.ts";
import { openSandbox } from "../../container/open-sandbox.ts";
import { labels } from "../profile.ts";
import { EngineError, type RunReport, type SandboxJob, type SandboxSpec } from "../types.ts";
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

/** What the next job prints; "removed" if its container was removed instead. */
export async function printedByNext(sandbox: ReusedSandbox, code: string): Promise<string> {
  if (await sandbox.rearm().catch(isTooLate)) return (await sandbox.run(code)).out;
  // Under gVisor a busy engine may end a fork bomb only after the agent has stopped waiting for it.
  await vi.waitFor(async () => expect(await isListed(sandbox.id)).toBe(false), {
    timeout: 50_000,
    interval: 100,
  });
  return "removed";
}

/** Whether the engine lists the container. */
export async function isListed(id: string): Promise<boolean> {
  const { engine } = await testEngine();
  const known = await engine.list(labels.agentId, "agent-1", AbortSignal.timeout(60_000));
  return JSON.stringify(known).includes(id);
}

/** The engine took too long to end the last job: the container cannot be used again. */
function isTooLate(error: unknown): false {
  if (!(error instanceof EngineError)) throw error;
  return false;
}
