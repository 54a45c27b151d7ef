import { spawn } from "node:child_process";
import { resolve } from "node:path";
import { parseArgs, type ParseArgsConfig } from "node:util";
import { Config, ConfigError } from "../../shared/config/config.ts";
import { describeError } from "../../shared/log-line.ts";
import { readConfig as readSettings } from "../../shared/process/files.node.ts";

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

/**
 * The arguments of a command without options, or undefined where they ask for its help, which is
 * then printed. Throws OperatorError with exit code 2 on an option.
 */
export function readArguments(command: string, help: string): string[] | undefined {
  const { values, positionals } = parseCommandLine(command, {
    allowPositionals: true,
    options: { help: { type: "boolean", short: "h" } },
  });
  if (!values.help) return positionals;
  process.stdout.write(help);
  return undefined;
}

/** Node's parseArgs. Throws OperatorError with exit code 2, and a way to the help, on what `config` lacks. */
export function parseCommandLine<const C extends ParseArgsConfig>(
  command: string,
  config: C,
): ReturnType<typeof parseArgs<C>> {
  try {
    return parseArgs(config);
  } catch (error) {
    throw wrongArguments(describeError(error), command);
  }
}

export function wrongArguments(message: string, command: string): OperatorError {
  return new OperatorError(`${message}; ${command} -- --help shows how`, { exitCode: 2 });
}

/** The configuration that the API and the agent read too. Throws OperatorError. */
export function readConfig(env: NodeJS.ProcessEnv): Config {
  try {
    return readSettings(env);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new OperatorError(`the configuration is wrong: ${error.message}`, { cause: error });
  }
}

/** Every configuration key with its meaning and default, one line each. */
export function describeKeys(): string {
  const defaults = Config.parse({}) as Record<string, unknown>;
  const keys = Object.entries(Config.shape).map(([key, schema]) => {
    const value = defaults[key];
    const shown = value === undefined ? "" : ` [${JSON.stringify(value)}]`;
    return `  ${key.padEnd(38)}${schema.description ?? ""}${shown}`;
  });
  return keys.join("\n");
}

/** Prints one line about what the scripts are doing. */
export function say(line: string): void {
  process.stdout.write(`airlock: ${line}\n`);
}

/** Rows of cells in columns, the first row as titles. */
export function table(rows: string[][]): string {
  const widths = rows[0]!.map((_, at) => Math.max(...rows.map((row) => row[at]!.length)));
  const lines = rows.map((row) => row.map((cell, at) => cell.padEnd(widths[at]!)).join("  "));
  return `${lines.map((line) => line.trimEnd()).join("\n")}\n`;
}

/** What fetch needs to send a value as JSON, or a text as it is. */
export function jsonRequest(
  method: string,
  body?: unknown,
  headers: Record<string, string> = {},
): RequestInit {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return {
    method,
    headers: { "Content-Type": "application/json", ...headers },
    ...(text !== undefined && { body: text }),
  };
}

/** The commit on which all of `npm test` passed last in this working tree: a release needs it. */
export const testedRef = "refs/worktree/tested";

type ToolResult = { ok: boolean; output: string };

/** The tools' own `node` comes from node_modules too: the machine's may be too old for them. */
export const toolEnv = {
  ...process.env,
  PATH: `${resolve("node_modules/.bin")}:${process.env["PATH"] ?? ""}`,
};

/** Runs one of the project's command-line tools and collects what it prints. */
export async function runTool(name: string, args: string[]): Promise<ToolResult> {
  const child = spawn(name, args, { env: toolEnv, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (output += chunk.toString()));
  return new Promise((done, fail) => {
    child.once("error", fail);
    child.once("close", (code) => done({ ok: code === 0, output }));
  });
}
