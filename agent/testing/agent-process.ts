import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { programOf } from "../../shared/testing/program.ts";

/** The agent's entry point in its own process. */
export type AgentProcess = {
  readonly process: ChildProcess;
  /** The first message to its parent; rejects if it ends before. */
  readonly ready: Promise<unknown>;
  /** Its exit code; null for a signal. */
  readonly exit: Promise<number | null>;
  /** All of its standard error, once it has ended. */
  readonly stderr: Promise<string>;
};

/** Starts it with these AIRLOCK_ variables; `enter` is a command that runs it on another host. */
export function startAgent(
  env: Record<string, string | undefined>,
  enter: readonly string[] = [],
): AgentProcess {
  const [program = process.execPath, ...command] = enter.length ? [...enter, process.execPath] : [];
  const { entry, flags } = programOf("agent/main.ts");
  const agent = fork(entry, {
    execPath: program,
    // As scripts/run starts it.
    execArgv: [...command, "--max-semi-space-size=8", ...flags],
    stdio: ["ignore", "ignore", "pipe", "ipc"],
    env: { PATH: process.env["PATH"], AIRLOCK_AGENT_TOKEN: "a-token-of-16-characters", ...env },
  });
  const stderr = text(agent.stderr!);
  const exit = once(agent, "exit").then(([code]) => code as number | null);
  const ready = Promise.race([
    once(agent, "message").then(([message]) => message as unknown),
    exit.then(async () => {
      throw new Error(`the agent ended before it was ready: ${await stderr}`);
    }),
  ]);
  ready.catch(() => {});
  return { process: agent, ready, exit, stderr };
}
