import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";

export type StartProcess = {
  pid: number;
  /** All that it has printed so far. */
  output(): string;
  /** Resolves when the output contains `text`, `times` times; rejects when the process ends first. */
  printed(text: string, times?: number): Promise<void>;
  signal(signal: NodeJS.Signals): void;
  /** Resolves with its exit code; null after a signal that it did not handle. */
  exited: Promise<number | null>;
};

/** Runs `npm start` without npm, in `cwd`, with these additions to the environment. */
export function startProcess(cwd: string, env: Record<string, string>): StartProcess {
  const child = spawn(process.execPath, ["--import", "tsx", "scripts/start.ts"], {
    cwd,
    env: { ...process.env, ...env },
  });
  let output = "";
  child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (output += chunk.toString()));
  const exited = once(child, "close").then(() => child.exitCode);
  return {
    pid: child.pid ?? 0,
    output: () => output,
    printed: (text, times = 1) => printed(child, () => output, text, times),
    signal: (signal) => child.kill(signal),
    exited,
  };
}

async function printed(
  child: ChildProcess,
  output: () => string,
  text: string,
  times: number,
): Promise<void> {
  const ended = new AbortController();
  child.once("close", () => ended.abort());
  while (output().split(text).length - 1 < times) {
    if (child.exitCode !== null) throw new Error(`ended without "${text}":\n${output()}`);
    const { signal } = ended;
    await Promise.race([
      once(child.stdout!, "data", { signal }),
      once(child.stderr!, "data", { signal }),
    ]).catch(() => {});
  }
}
