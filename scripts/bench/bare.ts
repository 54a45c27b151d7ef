import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import type { Engine } from "../../agent/engine/engine.ts";
import { containerProfile } from "../../agent/container/container-profile.ts";
import { plainSpec } from "../../agent/sandbox/spec.ts";
import { hasCommand } from "../setup/engine/install-engine.ts";

/** The job that everybody runs. */
export const HELLO = "print('hello')";

const MiB = 1024 ** 2;
const LABEL = "io.airlock.bench";
const CALL_MS = 60_000;

/**
 * One container from create to removed, straight over the engine's socket, with the options that an
 * Airlock container has.
 */
export async function coldCycle(engine: Engine, image: string): Promise<void> {
  const signal = AbortSignal.timeout(CALL_MS);
  const profile = bareProfile(image);
  const id = await engine.create(profile, signal);
  try {
    const stream = await engine.attach(id, signal);
    const printed = text(stream);
    await engine.start(id, signal);
    await engine.wait(id, signal);
    if (!(await printed).includes("hello")) throw new Error("the container did not say hello");
  } finally {
    await engine.remove(id, signal);
  }
}

function bareProfile(image: string) {
  const profile = containerProfile({
    ...plainSpec,
    image,
    labels: { agentId: "bench", agentName: "bench", leaseId: null },
    memoryBytes: 512 * MiB,
    pids: 128,
  });
  const labels = { [LABEL]: "bare" } as unknown as typeof profile.Labels;
  return { ...profile, Labels: labels, Cmd: ["-c", HELLO], OpenStdin: false, StdinOnce: false };
}

/** Removes what a bench that was killed has left. */
export async function removeBare(engine: Engine): Promise<void> {
  const signal = AbortSignal.timeout(CALL_MS);
  for (const { id } of await engine.list(LABEL, "bare", signal)) await engine.remove(id, signal);
}

export const hasDockerCommand = hasCommand("docker");

const runToEnd = promisify(execFile);

/** The command line that a user would pick instead. */
export async function dockerRun(dockerHost: string, image: string): Promise<void> {
  const args = ["run", "--rm", "--network", "none", image, "python3", "-c", HELLO];
  const { stdout } = await runToEnd("docker", args, {
    env: { ...process.env, DOCKER_HOST: dockerHost },
  });
  if (stdout !== "hello\n") throw new Error(`docker run printed ${JSON.stringify(stdout)}`);
}

const bwrap = "/usr/bin/bwrap";
/** Debian's own: a name on the PATH may be a script that looks for an interpreter first. */
const python = "/usr/bin/python3";
const isolated = "--unshare-all --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp".split(" ");

/** What a process costs without Airlock: with bubblewrap's namespaces around it, where that is installed, and Python alone. */
export const anchors: readonly { readonly name: string; readonly run: () => Promise<void> }[] = [
  ...(existsSync(bwrap)
    ? [{ name: "bwrap … python3", run: () => run(bwrap, [...isolated, python, "-c", HELLO]) }]
    : []),
  { name: "python3, not isolated", run: () => run(python, ["-c", HELLO]) },
];

async function run(command: string, args: readonly string[]): Promise<void> {
  const [code] = (await once(spawn(command, args, { stdio: "ignore" }), "exit")) as [number];
  if (code !== 0) throw new Error(`${command} ended with ${code}`);
}
