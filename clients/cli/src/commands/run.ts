import { basename } from "node:path";
import type { Command } from "commander";
import type { AsyncSubmitRequest } from "../../../typescript/src/index.ts";
import { isJsonObject, parseJson } from "../../../../shared/json.ts";
import { limits } from "../../../../shared/wire/limits.ts";
import { languageOfFile } from "../../../../shared/languages.ts";
import { UsageError } from "../exit.ts";
import { checkPython } from "../jobs/check-python.ts";
import { readScriptMetadata } from "../jobs/script-metadata.ts";
import { openFile } from "../files/open-file.ts";
import { readText, standardInput } from "../files/read-text.ts";
import { type FollowedOptions, submitAndFollow } from "../jobs/submit-and-follow.ts";
import type { Terminal } from "../terminal.ts";
import { addCommand, does, type Tool } from "../tool.ts";
import { collect, parseNumber, parsePairs } from "../words.ts";

export interface SubmitOptions extends FollowedOptions {
  input?: string;
  language?: string;
  stdin?: string;
  file?: string[];
  require?: string[];
  metadata?: string[];
  jobType?: string;
  timeout?: string;
}

export function addRun(program: Command): void {
  const run = addCommand(program, "run", "run a file, and show its output as it happens")
    .argument("<file>", "a file of code, or - for standard input")
    .argument("[args...]", "all that follows goes to the code")
    .passThroughOptions()
    .option("-r, --require <package>", "a package to install first (repeatable)", collect)
    .option("-l, --language <name>", "its language; default: by the file's ending, else python")
    .option("-i, --input <json>", "the job's input: a JSON object, or @file")
    .option("--stdin <file>", "what the code reads from standard input, or - for this command's")
    .option(
      "-f, --file <path>",
      "a file at /input/<name>: path or path=name (repeatable)",
      collect,
    );
  withJobOptions(run).addHelpText(
    "after",
    `
Exit code: the code's own; 124 after its time limit, 137 out of memory, 130 if it was cancelled,
125 if the service fails, 126 if it refuses the request.
Dependencies in a "# /// script" block (PEP 723) are installed like --require.`,
  );
  run.action(
    does(async (tool: Tool, file: string, given: string[], options: SubmitOptions) => {
      refuseSharedStdin(file, options);
      const code = await readText(file);
      const language = options.language ?? languageOfFile(file) ?? "python";
      const isPython = language === "python";
      const { dependencies, requiresPython } = isPython ? readScriptMetadata(code) : noMetadata;
      const args = given[0] === "--" ? given.slice(1) : given;
      if (given[0] !== "--") sayWhoseOptions(tool.terminal, run, given);
      if (isPython && options.stdin === undefined && file !== "-") sayUnread(tool.terminal, code);
      if (requiresPython !== undefined) await checkPython(tool, requiresPython, options.jobType);
      const request: AsyncSubmitRequest = {
        ...(await submitFields(tool, options)),
        code,
        ...(!isPython && { language }),
      };
      const requirements = [...dependencies, ...(options.require ?? [])];
      if (requirements.length > 0) request.requirements = requirements;
      if (args.length > 0) request.args = args;
      return submitAndFollow(tool, options, (signal) => tool.airlock.submit(request, { signal }));
    }),
  );
}

const noMetadata = { dependencies: [], requiresPython: undefined };

function refuseSharedStdin(file: string, { stdin, input }: SubmitOptions): void {
  if ([file, stdin, input?.replace(/^@/, "")].filter((one) => one === "-").length < 2) return;
  throw new UsageError("standard input can be the code, --stdin or --input, not two of them");
}

/** Options after the file go to the code, as with python and docker. Says so if airlock has the same option. */
function sayWhoseOptions(terminal: Terminal, run: Command, args: string[]): void {
  const own = new Set(run.options.flatMap(({ short, long }) => [short, long]));
  const end = args.indexOf("--");
  const same = args
    .slice(0, end < 0 ? args.length : end)
    .map((arg) => arg.replace(/^(--[^=]+)=.*/, "$1"))
    .filter((arg) => own.has(arg));
  if (same.length === 0) return;
  const names = [...new Set(same)].join(", ");
  terminal.note(
    `airlock: ${names} went to the code: options of airlock come before the file (-- after the file hides this)`,
  );
}

/**
 * Standard input is read only with `--stdin`: a pipe may stay open without data, or belong to a loop around this
 * command. Words in the code show whether it reads standard input, which is enough for a hint.
 */
function sayUnread(terminal: Terminal, code: string): void {
  if (!/\b(?:stdin|fileinput)\b|(?<![.\w])input\s*\(/.test(code) || !standardInput().hasBytes)
    return;
  terminal.note("airlock: the code gets no standard input; --stdin - passes this command's on");
}

/** The options of every command that makes one job. */
export function withJobOptions(command: Command): Command {
  return withCallOptions(command.option("-t, --job-type <name>", "job type"));
}

/** Those that calls of sessions have, too. */
export function withCallOptions(command: Command): Command {
  return command
    .option("--timeout <seconds>", "time limit of the code")
    .option("-m, --metadata <name=value>", "your own words about the job (repeatable)", collect)
    .option("-o, --out <folder>", "fetch the artifacts into a folder")
    .option("--force", "with --out: replace files that exist")
    .option("-d, --detach", "print the job's id and do not wait");
}

export async function submitFields(
  tool: Tool,
  options: SubmitOptions,
): Promise<Omit<AsyncSubmitRequest, "code">> {
  const { input, stdin, file = [], jobType, timeout, metadata } = options;
  return {
    ...(input !== undefined && { input_data: await readInput(input) }),
    ...(stdin !== undefined && { stdin: await readText(stdin, "-f sends a file of any bytes") }),
    ...(file.length > 0 && { files: await uploadAll(tool, file) }),
    ...(jobType !== undefined && { job_type: jobType }),
    ...(timeout !== undefined && { timeout: parseNumber(timeout, "--timeout") }),
    ...(metadata && { metadata: parsePairs(metadata, "--metadata") }),
  };
}

async function readInput(given: string): Promise<Record<string, unknown>> {
  const json = given.startsWith("@") ? await readText(given.slice(1)) : given;
  try {
    const value = parseJson(json, { depth: limits.jsonDepthMax });
    if (isJsonObject(value)) return value;
  } catch {
    // Said below.
  }
  throw new UsageError(`--input must be a JSON object, such as '{"name": "Ada"}', or @file`);
}

async function uploadAll({ airlock, terminal }: Tool, paths: string[]) {
  const files = [];
  for (const given of paths) {
    const at = given.lastIndexOf("=");
    const path = at > 0 ? given.slice(0, at) : given;
    const name = at > 0 ? given.slice(at + 1) : basename(given);
    const blob = await openFile(path, terminal);
    const { file_id } = await airlock.files.upload(name, blob);
    files.push({ name, file_id });
  }
  return files;
}
