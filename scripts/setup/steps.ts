import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { OperatorError, say } from "../operate/command.ts";

type Step = {
  /** What is being done, as in "installing docker.io". */
  title: string;
  command: string;
  args: string[];
  /** Receives all output of the command; its end is shown if the command fails. */
  logFile: string;
  /** A more detailed log that the command writes itself; it may not exist. */
  detailFile?: string;
  env?: NodeJS.ProcessEnv;
};

const PROGRESS_EVERY_MS = 5000;

/** Runs a slow command and prints progress every few seconds. Throws OperatorError if it fails. */
export async function runStep(step: Step): Promise<void> {
  mkdirSync(dirname(step.logFile), { recursive: true });
  const log = openSync(step.logFile, "w");
  const elapsed = withProgress(step.title);
  try {
    const child = spawn(step.command, step.args, {
      // Detached so that Ctrl-C does not reach it: an interrupted installation leaves packages half
      // configured.
      detached: true,
      stdio: ["ignore", log, log],
      env: { ...process.env, ...step.env },
    });
    const [code] = (await once(child, "exit")) as [number | null];
    if (code !== 0) throw new OperatorError(failure(step, code));
  } finally {
    closeSync(log);
    elapsed.stop();
  }
  say(`${step.title}: done in ${elapsed.seconds()} s`);
}

/** Prints the title of a slow step, and again with the elapsed time until `stop()`. */
export function withProgress(title: string): { seconds(): number; stop(): void } {
  const start = performance.now();
  const seconds = (): number => Math.round((performance.now() - start) / 1000);
  say(`${title} …`);
  const timer = setInterval(() => say(`${title} … ${seconds()} s`), PROGRESS_EVERY_MS);
  return { seconds, stop: () => clearInterval(timer) };
}

/** The last lines of a log, indented. */
export function logTail(logFile: string, lines = 15): string {
  const text = readFileSync(logFile, "utf8").trimEnd();
  return text
    .split("\n")
    .slice(-lines)
    .map((line) => `  ${line}`)
    .join("\n");
}

function failure(step: Step, code: number | null): string {
  const logs = [step.detailFile, step.logFile].filter(
    (file) => file && existsSync(file),
  ) as string[];
  const tails = logs.map((file) => `${file} ends with:\n${logTail(file)}`).join("\n");
  const diskFull = logs.some((file) =>
    readFileSync(file, "utf8").includes("No space left on device"),
  )
    ? "\nThe disk is full: make room (`df -h` shows where), then run this again."
    : "";
  return `${step.title} failed (exit code ${code ?? "none"}).\n${tails}${diskFull}`;
}

const RETRY_MS = 500;

/**
 * Runs `work` while holding the lock `name`, which only one process of this machine can hold. All
 * of set-up uses the default name. The lock is an abstract Linux socket, so the kernel frees it
 * however its owner ends.
 */
export async function withSetupLock<T>(work: () => Promise<T>, name = "airlock-setup"): Promise<T> {
  for (let waited = 0; ; waited += 1) {
    const lock = createServer().listen(`\0${name}`);
    try {
      await once(lock, "listening");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
      if (waited === 0) say("another set-up is running on this machine, waiting for it");
      await sleep(RETRY_MS);
      continue;
    }
    try {
      return await work();
    } finally {
      lock.close();
    }
  }
}

/** Where set-up stores the output of its commands; only root runs any. */
export const LOG_DIR = "/var/log/airlock";

const APT = { command: "apt-get", env: { DEBIAN_FRONTEND: "noninteractive" } };

/** Whether a program of this name is on the PATH. */
export function hasCommand(name: string): boolean {
  const dirs = [...(process.env["PATH"] ?? "").split(":"), "/usr/sbin", "/sbin"];
  return dirs.some((dir) => isExecutable(join(dir, name)));
}

/** Whether this process may install packages of Debian. */
export function mayInstall(): boolean {
  return process.getuid?.() === 0 && hasCommand("apt-get");
}

/**
 * Runs the following command in namespaces that end with this process, so that no mount or process is left, and those of
 * the host are out of its reach.
 */
export const CONFINED = [
  "--pdeathsig=KILL",
  "unshare",
  "--mount",
  "--pid",
  "--fork",
  "--kill-child",
];

/** Installs Docker, and gVisor's runtime if the distribution has it. Needs root and apt. */
export async function installEngine(): Promise<void> {
  say("no container engine found: installing Docker with apt");
  await aptUpdate();
  const runsc = aptHas("runsc") ? ["runsc"] : [];
  await aptInstall(["docker.io", "iptables", "ca-certificates", ...runsc]);
}

/**
 * Refreshes apt's lists. An unreachable repository is not an error: installing a package from it
 * fails later.
 */
export async function aptUpdate(): Promise<void> {
  const title = "reading the package lists";
  try {
    await runStep({ ...APT, title, args: ["update"], logFile: `${LOG_DIR}/apt-update.log` });
  } catch {
    say(`${title}: not all could be read, going on (see ${LOG_DIR}/apt-update.log)`);
  }
}

/** Installs packages without their recommendations. */
export async function aptInstall(packages: readonly string[]): Promise<void> {
  await runStep({
    ...APT,
    title: `installing ${packages.join(", ")}`,
    args: [
      "-o",
      "DPkg::Lock::Timeout=120",
      "install",
      "-y",
      "--no-install-recommends",
      ...packages,
    ],
    logFile: `${LOG_DIR}/apt-install.log`,
  });
}

function aptHas(name: string): boolean {
  return spawnSync("apt-cache", ["show", "--quiet=0", name], { stdio: "ignore" }).status === 0;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** An image label: the name of the public image that this one, built from Debian, replaces. */
export const STANDS_IN_FOR = "io.airlock.stands-in-for";

export type StandIn = { suite: string; python: string };

const TRIXIE: StandIn = { suite: "trixie", python: "3.13" };
const BOOKWORM: StandIn = { suite: "bookworm", python: "3.11" };

const BY_PYTHON: Record<string, StandIn[]> = { "3.13": [TRIXIE, BOOKWORM], "3.11": [BOOKWORM] };

const OFFICIAL_PYTHON =
  /^(?:docker\.io\/)?(?:library\/)?python:(3\.\d+)(?:\.\d+)?(?:-slim)?(?:-[a-z]+)?$/;

/** The Debian releases that can replace an official Python image, best first; empty for any other. */
export function standInsFor(baseImage: string): StandIn[] {
  const python = OFFICIAL_PYTHON.exec(baseImage)?.[1];
  return (python && BY_PYTHON[python]) || [];
}

const PUBLIC_MIRROR = "http://deb.debian.org/debian/";
const ANSWER_TIMEOUT_MS = 10_000;

/** The Debian mirror that apt uses here, else the public one. */
export function debianMirror(): string {
  const filter = ["Identifier: Packages", "Origin: Debian", "Label: Debian"];
  const args = ["indextargets", "--format", "$(REPO_URI)", ...filter];
  const { stdout } = spawnSync("apt-get", args, { encoding: "utf8" });
  return stdout.split("\n")[0]?.trim() || PUBLIC_MIRROR;
}

/** The first of these releases that the mirror carries. */
export async function firstCarried(
  mirror: string,
  standIns: StandIn[],
): Promise<StandIn | undefined> {
  for (const standIn of standIns) {
    if (await carries(mirror, standIn.suite)) return standIn;
  }
  return undefined;
}

/**
 * Only a 404 means no: if fetch fails, debootstrap may still reach the mirror, for example through
 * a proxy.
 */
async function carries(mirror: string, suite: string): Promise<boolean> {
  try {
    const signal = AbortSignal.timeout(ANSWER_TIMEOUT_MS);
    const url = new URL(`dists/${suite}/Release`, mirror);
    return (await fetch(url, { method: "HEAD", signal })).status !== 404;
  } catch {
    return true;
  }
}
