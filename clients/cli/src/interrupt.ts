import { ExitError, exitCode } from "./exit.ts";

interface Options {
  /** If the output can no longer be written: true aborts the signal, false ends the command. */
  unread?: boolean;
}

/** Aborts work that has to stop before the command may end because its output cannot be written. */
const unreadStops = new Set<(why: string) => void>();

const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
/** Under npm one Ctrl-C arrives twice, and so does the end of a terminal from some shells. */
const samePressMs = 1000;

/**
 * Runs work whose signal aborts at the first Ctrl-C, with an error that exits with 130. A second Ctrl-C
 * ends the command at once. SIGTERM (143), and SIGHUP of a terminal that was closed, count as Ctrl-C.
 */
export async function interruptible<T>(
  work: (signal: AbortSignal) => Promise<T>,
  { unread = false }: Options = {},
): Promise<T> {
  const interrupted = new AbortController();
  let code: number = exitCode.interrupted;
  const abort = (why: string): void => interrupted.abort(new ExitError(code, why));
  let pressedAt: number | undefined;
  const stop = (signal: NodeJS.Signals): void => {
    const now = performance.now();
    pressedAt ??= now;
    if (now - pressedAt > samePressMs) process.exit(code);
    if (signal === "SIGTERM") code = exitCode.terminated;
    abort("interrupted");
  };
  for (const signal of signals) process.on(signal, stop);
  if (unread) unreadStops.add(abort);
  try {
    return await work(interrupted.signal);
  } finally {
    for (const signal of signals) process.off(signal, stop);
    unreadStops.delete(abort);
  }
}

/** Ends the command when its output can no longer be written: `airlock ps | head -1` closes the pipe early. */
export function endWithItsReader(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on("error", ({ code, message }: NodeJS.ErrnoException) => {
      // EIO: the terminal was closed.
      const isUnread = code === "EPIPE" || code === "EIO";
      const why = isUnread ? "nobody reads the output" : `the output cannot be written: ${message}`;
      for (const stop of unreadStops) stop(why);
      if (unreadStops.size > 0) return;
      if (isUnread) process.exit();
      process.stderr.write(`airlock: ${why}\n`);
      process.exit(exitCode.failed);
    });
  }
}
