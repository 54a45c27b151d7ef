import { fork } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { OperatorError } from "../command/operator-error.ts";

/** The message of a child that is ready; `url` is the API's. */
export type ReadyMessage = { type: "ready"; url: string };

export type Child = {
  /** Rejects with OperatorError when the child ends first. */
  ready: Promise<ReadyMessage>;
  /** Resolves with the exit code when the child has ended; 1 for a signal. */
  ended: Promise<number>;
  /** Asks the child to stop and waits; kills it after `graceMs`. */
  stop(graceMs: number): Promise<void>;
  /** Sends the second signal, on which the child ends at once. */
  hurry(): void;
};

const HURRY_MS = 3000;

/**
 * Starts an entry point of Airlock, with this process's options of Node. If this process dies, the IPC channel closes
 * and the child ends by itself.
 */
export function startChild(name: string, file: string, env: NodeJS.ProcessEnv): Child {
  const child = fork(file, [], {
    // A process group of its own: Ctrl-C then reaches only this process, which stops the children
    // in order.
    detached: true,
    stdio: ["ignore", "inherit", "inherit", "ipc"],
    env,
  });

  const ended = new Promise<number>((resolve) => {
    child.once("exit", (code) => resolve(code ?? 1));
  });
  const ready = new Promise<ReadyMessage>((resolve, reject) => {
    child.on("message", (message: ReadyMessage) => {
      if (message.type === "ready") resolve(message);
    });
    child.once("error", reject);
    void ended.then((code) =>
      reject(
        new OperatorError(`the ${name} did not start (exit code ${code}), see above`, {
          exitCode: code || 1,
        }),
      ),
    );
  });
  // A child that is stopped before it is ready is no failure of this process.
  ready.catch(() => {});

  const endWithin = async (ms: number): Promise<void> => {
    const patience = new AbortController();
    const late = sleep(ms, "late", { signal: patience.signal }).catch(() => "ended");
    if ((await Promise.race([ended, late])) === "late") child.kill("SIGKILL");
    patience.abort();
    await ended;
  };

  return {
    ready,
    ended,
    stop: async (graceMs) => {
      child.kill("SIGTERM");
      await endWithin(graceMs);
    },
    hurry: () => {
      child.kill("SIGTERM");
      void endWithin(HURRY_MS);
    },
  };
}
