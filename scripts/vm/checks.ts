/** Runs checks, prints one line for each, and counts. */
export type Checks = {
  /** Prints `passed` or `failed`; a failure's words follow indented, and the next check runs. */
  readonly check: (name: string, run: () => Promise<unknown>) => Promise<boolean>;
  /** Runs the checks of one part of the guest; a failure outside of them counts as one too. */
  readonly section: (name: string, run: () => Promise<void>) => Promise<void>;
  /** Prints a line that is no check. */
  readonly note: (text: string) => void;
  readonly summary: () => { passed: number; failed: number };
};

export function makeChecks(print: (line: string) => void): Checks {
  const count = { passed: 0, failed: 0 };
  let section = "";

  async function check(name: string, run: () => Promise<unknown>): Promise<boolean> {
    const began = performance.now();
    let reason: string | undefined;
    try {
      await run();
    } catch (error) {
      reason = error instanceof Error ? error.message : String(error);
    }
    const seconds = Math.round((performance.now() - began) / 1000);
    const title = `${section}: ${name} (${seconds} s)`;
    count[reason === undefined ? "passed" : "failed"] += 1;
    print(reason === undefined ? `passed  ${title}` : `failed  ${title}\n${indent(reason)}`);
    return reason === undefined;
  }

  return {
    check,
    async section(name, run) {
      section = name;
      try {
        await run();
      } catch (error) {
        await check("its set-up", () => Promise.reject(error));
      }
    },
    note: (text) => print(`        ${section}: ${text}`),
    summary: () => ({ ...count }),
  };
}

function indent(text: string): string {
  return text.replaceAll(/^/gm, "        ");
}
