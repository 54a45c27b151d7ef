import { ExitError, exitCode } from "./exit.ts";

/**
 * Runs work whose signal aborts at the first Ctrl-C, with an error that exits with 130. A second Ctrl-C
 * ends the command at once.
 */
export async function interruptible<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const interrupted = new AbortController();
  const stop = () => {
    if (interrupted.signal.aborted) process.exit(exitCode.interrupted);
    interrupted.abort(new ExitError(exitCode.interrupted, "interrupted"));
  };
  process.on("SIGINT", stop).on("SIGTERM", stop);
  try {
    return await work(interrupted.signal);
  } finally {
    process.off("SIGINT", stop).off("SIGTERM", stop);
  }
}
