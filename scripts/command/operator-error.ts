import { ConfigError } from "../../shared/config/config.ts";

/** A failure that the person at the keyboard can mend; its message says how. */
export class OperatorError extends Error {
  override name = "OperatorError";
  /** What the process exits with. */
  readonly exitCode: number;

  constructor(message: string, options: ErrorOptions & { exitCode?: number } = {}) {
    super(message, options);
    this.exitCode = options.exitCode ?? 1;
  }
}

/** Runs an entry point: an OperatorError or ConfigError ends it with its message alone, anything else with its stack. */
export async function runMain(main: () => Promise<void>): Promise<void> {
  try {
    await main();
  } catch (error) {
    process.stderr.write(`airlock: ${describe(error)}\n`);
    process.exit(error instanceof OperatorError ? error.exitCode : 1);
  }
}

function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error instanceof OperatorError || error instanceof ConfigError) return error.message;
  const { code, path } = error as NodeJS.ErrnoException;
  if (code === "ENOSPC" || code === "EDQUOT") {
    return `the disk is full (${path ?? error.message}): make room (df -h shows where), then run this again`;
  }
  if ((code === "EACCES" || code === "EPERM" || code === "EROFS") && path) {
    return `no permission to write ${path}: mend that (ls -ld ${path}), or choose another data_dir`;
  }
  if ((code === "EEXIST" || code === "ENOTDIR") && path) {
    return `${path} is or leads through a file, where a folder is needed: choose another data_dir`;
  }
  return error.stack ?? error.message;
}
