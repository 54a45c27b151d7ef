import type { RunReport } from "../report.ts";
import { plainSpec, type SandboxSpec } from "../spec.ts";

/** The report of code that ended well and left nothing, with the changes that a test wants. */
export function reportWith(changes: Partial<RunReport>): RunReport {
  return {
    ending: "exited",
    compiled: null,
    started: true,
    exitStatus: 0,
    exitSignal: null,
    exception: null,
    outOfMemory: false,
    lostReason: null,
    stdout: new Uint8Array(),
    stderr: new Uint8Array(),
    stdoutTruncated: false,
    stderrTruncated: false,
    result: { kind: "absent" },
    artifacts: [],
    items: [],
    unansweredCall: null,
    itemsTruncated: false,
    skipped: [],
    executionMs: 12,
    usage: { cpuTimeMs: 10, maxRssBytes: 10_000_000, wallTimeMs: 12 },
    ...changes,
  };
}

export function specWith(changes: Partial<SandboxSpec> = {}): SandboxSpec {
  return {
    ...plainSpec,
    image: "python:3.13-slim",
    labels: { agentId: "agent-1", agentName: "tests", leaseId: null },
    memoryBytes: 256 * 1024 * 1024,
    pids: 128,
    ...changes,
  };
}
