import { spawn } from "node:child_process";
import { once } from "node:events";
import { programArgs } from "../../shared/testing/program.ts";
import { connectEngine, type Engine } from "../engine/engine.ts";
import { plainSpec, type SandboxSpec } from "../sandbox/sandbox.ts";
import type { RunReport } from "../sandbox/verdict.ts";

const reference = "python:3.13-slim";

/** The engine that tests run against, and its base image; npm test sets both up. */
export async function testEngine(): Promise<{ engine: Engine; image: string }> {
  const host = process.env["AIRLOCK_DOCKER_HOST"] ?? "unix:///var/run/docker.sock";
  const remedy = "npm run setup installs and starts one; AIRLOCK_DOCKER_HOST names another.";
  const engine = connectEngine(host);
  const signal = AbortSignal.timeout(60_000);
  await engine.describe(signal).catch((cause: unknown) => {
    throw new Error(`no container engine answers at ${host}. ${remedy}`, { cause });
  });
  const image =
    (await engine.imageId(reference, signal)) ??
    (await engine.labelledImageId("io.airlock.stands-in-for", reference, signal));
  if (image === null) throw new Error(`the engine at ${host} has no ${reference}. ${remedy}`);
  return { engine, image };
}

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

/** Starts an agent, waits until its code runs, and kills it. Returns the id of the container that it leaves. */
export async function killAgent(doomedId: string, doomedName: string): Promise<string> {
  const program = programArgs("agent/testing/doomed-agent.ts");
  const agent = spawn(process.execPath, [...program, doomedId, doomedName], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [containerId] = (await once(agent.stdout, "data")) as [Buffer];
  agent.kill("SIGKILL");
  return containerId.toString();
}
