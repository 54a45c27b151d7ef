import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { onTestFinished } from "vitest";
import { startNode } from "../../api/testing/start-node.ts";
import { type ServiceOptions, startTestService } from "../../scripts/testing/test-service.ts";
import { pass, startHttpProxy } from "../../shared/testing/http.ts";
import { programArgs } from "../../shared/testing/program.ts";
import { atEndOfFile, tempFolder } from "../../shared/testing/test-file.ts";

interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

interface CommandOptions {
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

/** A service without an agent, and the command `airlock` for it, until the test ends. */
export async function startCommandApi(vars: Record<string, string> = {}) {
  const api = await startNode(vars);
  onTestFinished(() => api.close());
  return { api, airlock: commandFor(api.url) };
}

/** A service with an agent, the command `airlock` for it, and a folder, until the test file ends. */
export async function startCommandService(options: ServiceOptions = {}) {
  const service = await startTestService(options);
  atEndOfFile(() => service[Symbol.asyncDispose]());
  await service.startAgent();
  const folder = mkdtempSync(join(service.folder, "command-"));
  const airlock = commandFor(service.url, options.key);
  return {
    service,
    folder,
    airlock,
    /** Puts a file into the folder; returns its path. */
    script: (name: string, code: string): string => {
      const path = join(folder, name);
      writeFileSync(path, code);
      return path;
    },
    /** Runs a job to its end, by the command itself; returns its id. */
    detached: async (code: string): Promise<string> => {
      const { stdout } = await airlock.run(["run", "-d", "-"], { stdin: code });
      const id = stdout.trim();
      await airlock.run(["logs", "-f", id]);
      return id;
    },
  };
}

/** A way to a service on which the answers to requests with this path wait for `release`. */
export async function startHoldingProxy(target: string, path: RegExp) {
  const held = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  const proxy = await startHttpProxy(target, (...given) => {
    if (!path.test(given[2].url!)) return pass(...given);
    held.resolve();
    void released.promise.then(() => pass(...given));
  });
  return {
    ...proxy,
    /** Resolves once the service has answered such a request. */
    held: held.promise,
    release: released.resolve,
  };
}

/** The command `airlock` for one service, in the words of bash, zsh and fish alike. */
export function shellFunction(url: string, shell: "sh" | "fish" = "sh"): string {
  const args = [process.execPath, ...programArgs("clients/cli/main.ts")].join(" ");
  const command = `env AIRLOCK_URL=${url} XDG_CONFIG_HOME=/nonexistent ${args}`;
  return shell === "fish"
    ? `function airlock; ${command} $argv; end`
    : `airlock() { ${command} "$@"; }`;
}
