import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { text } from "node:stream/consumers";
import type { Command } from "commander";
import type { AsyncSubmitRequest } from "../../../typescript/src/index.ts";
import { UsageError } from "../exit.ts";
import { readScriptMetadata } from "../jobs/script-metadata.ts";
import { openFile } from "../files/open-file.ts";
import { type FollowedOptions, submitAndFollow } from "../jobs/submit-and-follow.ts";
import { addCommand, does, type Tool } from "../tool.ts";
import { collect, parseNumber, parsePairs } from "../words.ts";

export interface SubmitOptions extends FollowedOptions {
  input?: string;
  stdin?: string;
  arg?: string[];
  file?: string[];
  require?: string[];
  metadata?: string[];
  jobType?: string;
  timeout?: string;
}

export function addRun(program: Command): void {
  const run = addCommand(program, "run", "run a Python file, and show its output as it happens")
    .argument("<file>", "a Python file, or - for standard input")
    .argument("[args...]", "arguments of the code, after --")
    .showHelpAfterError(
      "(options of the code come after --: airlock run prog.py -- --flag; --help shows more)",
    )
    .option("--arg <text>", "an argument of the code (repeatable)", collect)
    .option("-r, --require <package>", "a package to install first (repeatable)", collect)
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
    does(async (tool: Tool, file: string, args: string[], options: SubmitOptions) => {
      const code = await readText(file);
      const { dependencies } = readScriptMetadata(code);
      const request: AsyncSubmitRequest = {
        ...(await submitFields(tool, options)),
        code,
      };
      const requirements = [...dependencies, ...(options.require ?? [])];
      if (requirements.length > 0) request.requirements = requirements;
      const all = [...(options.arg ?? []), ...args];
      if (all.length > 0) request.args = all;
      return submitAndFollow(tool, options, (signal) => tool.airlock.submit(request, { signal }));
    }),
  );
}

/** The options of every command that makes one job. */
export function withJobOptions(command: Command): Command {
  return command
    .option("-t, --job-type <name>", "job type")
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
    ...(stdin !== undefined && { stdin: await readText(stdin) }),
    ...(file.length > 0 && { files: await uploadAll(tool, file) }),
    ...(jobType !== undefined && { job_type: jobType }),
    ...(timeout !== undefined && { timeout: parseNumber(timeout, "--timeout") }),
    ...(metadata && { metadata: parsePairs(metadata, "--metadata") }),
  };
}

export async function readText(file: string): Promise<string> {
  if (file === "-") return text(process.stdin);
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new UsageError(
      code === "ENOENT" ? `there is no file ${file}` : `${file} cannot be read: ${message}`,
    );
  }
}

async function readInput(given: string): Promise<Record<string, unknown>> {
  const json = given.startsWith("@") ? await readText(given.slice(1)) : given;
  try {
    const value: unknown = JSON.parse(json);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      return value as Record<string, unknown>;
    }
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
