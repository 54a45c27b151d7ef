import { randomUUID } from "node:crypto";
import { onTestFinished } from "vitest";
import { classify } from "../output/classify.ts";
import type { RunOptions, SandboxCall, SandboxJob } from "../job.ts";
import type { RunReport } from "../report.ts";
import type { Sandbox } from "../sandbox.ts";
import { type SandboxSpec } from "../spec.ts";
import { openOn, sandboxRuntime } from "./backend.ts";
import type { testEngine } from "./engine.ts";
import { files, openOnHost, type Start, text } from "./host-run.ts";
import { specWith } from "./report.ts";
import { runIn } from "./run-code.ts";

interface Call extends Partial<SandboxJob>, Partial<SandboxCall> {}

/** What a test looks at after a call. */
export interface Called {
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
export function beginSession(
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
