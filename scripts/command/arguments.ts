import { parseArgs, type ParseArgsConfig } from "node:util";
import { describeError } from "../../shared/log-line.ts";
import { OperatorError } from "./operator-error.ts";

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
