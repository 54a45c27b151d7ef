import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { programArgs } from "../../../../shared/testing/program.ts";
import { tempFolder } from "../../../../shared/testing/temp-folder.ts";

export interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

export interface CommandOptions {
  env?: Record<string, string>;
  /** null: a pipe that stays open and silent. */
  stdin?: string | null;
  cwd?: string;
}

/** The command `airlock` for one service, as a process of its own without a terminal. */
export function commandFor(url: string, key?: string) {
  const config = tempFolder();
  const start = (args: readonly string[], { env = {}, stdin = "", cwd }: CommandOptions = {}) => {
    const child = spawn(process.execPath, [...programArgs("clients/cli/main.ts"), ...args], {
      cwd,
      env: {
        ...process.env,
        AIRLOCK_URL: url,
        ...(key !== undefined && { AIRLOCK_KEY: key }),
        XDG_CONFIG_HOME: config,
        ...env,
      },
    });
    if (stdin !== null) child.stdin.end(stdin);
    const ended = (async (): Promise<Ended> => {
      const [stdout, stderr] = await Promise.all([
        text(child.stdout),
        text(child.stderr),
        once(child, "close"),
      ]);
      return { code: child.exitCode, stdout, stderr };
    })();
    return { child, ended };
  };
  return {
    start,
    /** Runs it to its end. */
    run: async (args: readonly string[], options?: CommandOptions): Promise<Ended> =>
      start(args, options).ended,
  };
}
