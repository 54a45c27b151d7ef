import { fork } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { OperatorError } from "../command/operator-error.ts";

/** What a child sends once it serves; the URL is the API's. */
export type ReadyMessage = { type: "ready"; url: string };

export type Child = {
  /** Rejects with OperatorError when the child ends first. */
  ready: Promise<ReadyMessage>;
  /** Settles when it has ended, with its exit code (1 for a signal). */
  ended: Promise<number>;
  /** Asks it to stop and waits; ends it by force after `graceMs`. */
  stop(graceMs: number): Promise<void>;
  /** Tells it to drop everything: the second signal of the children's contract. */
  hurry(): void;
};

const HURRY_MS = 3000;

/** Starts an entry point of ours. It ends by itself if this process dies, as its IPC channel closes. */
export function startChild(name: string, file: string, env: NodeJS.ProcessEnv): Child {
  const child = fork(file, [], {
    // As scripts/run does.
    execArgv: ["--max-semi-space-size=8", "--import", "tsx"],
    // A process group of its own: Ctrl-C reaches this process alone, which stops the children in order.
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
