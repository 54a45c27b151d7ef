import { type ChildProcess, spawn } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { programArgs } from "../../shared/testing/program.ts";

export type StartProcess = {
  pid: number;
  /** All that it has printed so far. */
  output(): string;
  /** Resolves when the output contains `text`; rejects when the process ends first. */
  printed(text: string): Promise<void>;
  signal(signal: NodeJS.Signals): void;
  /** Resolves with its exit code; null after a signal that it did not handle. */
  exited: Promise<number | null>;
};

/** Runs `npm start` without npm, in `cwd`, with these additions to the environment. API and agent start from source. */
export function startProcess(cwd: string, env: Record<string, string>): StartProcess {
  // As scripts/run starts it.
  const args = ["--max-semi-space-size=8", ...programArgs("scripts/start.ts")];
  const child = spawn(process.execPath, args, {
    cwd,
    env: { ...process.env, ...env },
  });
  let output = "";
  const more = new EventEmitter();
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (chunk: Buffer) => {
      output += chunk.toString();
      more.emit("more");
    });
  }
  const exited = once(child, "close").then(() => {
    more.emit("more");
    return child.exitCode;
  });

  const printed = async (text: string): Promise<void> => {
    while (!output.includes(text)) {
      if (!isRunning(child)) throw new Error(`ended without "${text}":\n${output}`);
      await once(more, "more");
    }
  };

  return {
    pid: child.pid ?? 0,
    output: () => output,
    printed,
    signal: (signal) => child.kill(signal),
    exited,
  };
}

function isRunning(child: ChildProcess): boolean {
  return child.exitCode === null && child.signalCode === null;
}
