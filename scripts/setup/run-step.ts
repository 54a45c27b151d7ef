import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import { OperatorError } from "../command/operator-error.ts";
import { say } from "../command/say.ts";

export type Step = {
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
