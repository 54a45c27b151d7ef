import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

/** A process that is started again whenever it ends, as a supervisor would, until it is stopped. */
export type KeptProcess = {
  readonly name: string;
  /** Sends a signal to the process that runs now, if any. */
  readonly signal: (signal: NodeJS.Signals) => void;
  /** Ends it by this signal and leaves it down; resolves with its exit code, null for a signal. */
  readonly down: (signal: NodeJS.Signals) => Promise<number | null>;
  /** Starts it, and keeps it running. */
  readonly up: () => void;
  /** How often it ended though nobody told it to, by exit code. */
  readonly ownEnds: ReadonlyMap<string, number>;
};

export type Launch = {
  readonly name: string;
  readonly command: readonly [string, ...string[]];
  readonly env: NodeJS.ProcessEnv;
  readonly logFile: string;
  /** A program of ours, which ends when the channel to its parent closes. */
  readonly hasChannel: boolean;
};

const restartMs = 500;

export function keepProcess(launch: Launch): KeptProcess {
  const ownEnds = new Map<string, number>();
  let wanted = new AbortController();
  let child: ChildProcess | undefined;
  let keeping = Promise.resolve();

  async function keep({ signal }: AbortController): Promise<void> {
    while (!signal.aborted) {
      child = start(launch);
      await exited(child);
      if (signal.aborted) return;
      const how = child.signalCode ?? `code ${child.exitCode}`;
      ownEnds.set(how, (ownEnds.get(how) ?? 0) + 1);
      await sleep(restartMs, undefined, { signal }).catch(() => {});
    }
  }

  return {
    name: launch.name,
    ownEnds,
    signal: (signal) => void child?.kill(signal),
    down: async (signal) => {
      wanted.abort();
      child?.kill(signal);
      await keeping;
      return child?.exitCode ?? null;
    },
    up: () => {
      wanted = new AbortController();
      keeping = keep(wanted);
    },
  };
}

function start({ command: [program, ...args], env, logFile, hasChannel }: Launch): ChildProcess {
  const log = openSync(logFile, "a");
  const child = spawn(program, args, {
    // Ctrl-C is for the process that runs all this.
    detached: true,
    stdio: hasChannel ? ["ignore", log, log, "ipc"] : ["ignore", log, log],
    env,
  });
  closeSync(log);
  child.on("error", () => {});
  return child;
}

async function exited(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
}
