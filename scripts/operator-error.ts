/** A failure that the person at the keyboard can mend; its message says how. */
export class OperatorError extends Error {
  override name = "OperatorError";
}

/** Runs an entry point: an OperatorError ends it with its message alone, anything else with its stack. */
export async function runMain(main: () => Promise<void>): Promise<void> {
  try {
    await main();
  } catch (error) {
    const text = error instanceof OperatorError ? error.message : describe(error);
    process.stderr.write(`airlock: ${text}\n`);
    process.exit(1);
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
