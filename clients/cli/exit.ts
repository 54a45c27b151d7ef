import { AirlockError, ConnectionError, ProblemError } from "../typescript/src/index.ts";

/** Exit codes of the command itself. `run` otherwise exits with the code's own. */
export const exitCode = {
  failed: 1,
  usage: 2,
  timeout: 124,
  service: 125,
  refused: 126,
  interrupted: 130,
  outOfMemory: 137,
  terminated: 143,
} as const;

/** An error that the user can correct; the message says how. */
export class UsageError extends Error {
  override name = "UsageError";
}

/** The address has no service, and another try would not find one. */
export class NoServiceError extends AirlockError {
  override name = "NoServiceError";
}

/** An error that has its own exit code. */
export class ExitError extends Error {
  override name = "ExitError";
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

/** The exit code of a failed command. */
export function exitCodeOf(error: unknown): number {
  if (error instanceof ExitError) return error.code;
  if (error instanceof UsageError) return exitCode.usage;
  if (error instanceof ProblemError) {
    return error.status >= 500 ? exitCode.service : exitCode.refused;
  }
  if (isUnreached(error)) return exitCode.service;
  return exitCode.failed;
}

/** A failed command as `--json` shows it. */
export function describeFailure(error: unknown): { error: Record<string, unknown> } {
  const message = messageOf(error);
  if (error instanceof ProblemError) {
    const { code = "http", status, correlationId, jobId, problem } = error;
    return {
      error: {
        code,
        status,
        message: problem?.detail ?? message,
        ...(problem?.errors && { errors: problem.errors }),
        ...(problem?.quota && { quota: problem.quota, limit: problem.limit, used: problem.used }),
        ...(jobId !== undefined && { job_id: jobId }),
        ...(correlationId !== undefined && { correlation_id: correlationId }),
      },
    };
  }
  const code = isUnreached(error) ? "no_connection" : "failed";
  return { error: { code, message } };
}

/**
 * A failed command in one or two lines for people.
 *
 * @param listing The command that lists what exists, where the user named one thing.
 */
export function explainFailure(error: unknown, listing?: string): string {
  const more = isUnreached(error) ? "\nairlock doctor looks for the reason." : "";
  if (!(error instanceof ProblemError) || error.code === undefined) return messageOf(error) + more;
  const correlation = error.correlationId === undefined ? "" : ` · ${error.correlationId}`;
  const message =
    error.code === "unauthorized"
      ? "the API key is missing, wrong or void: give one with --key, or store one with airlock login"
      : error.message;
  const isUnknown = error.code === "not_found" && listing !== undefined;
  const hint = isUnknown ? ` ${listing} lists those that do.` : "";
  return `${message}${hint}\n(${error.code}${correlation})`;
}

/** Whether the service could not be reached, or did not answer. */
export function isUnreached(error: unknown): boolean {
  return error instanceof ConnectionError || error instanceof NoServiceError;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

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
