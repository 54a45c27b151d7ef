import { basename } from "node:path";
import type { Command } from "commander";
import { parse } from "smol-toml";
import { isJsonObject, parseJson } from "../../shared/json.ts";
import { languageOfFile } from "../../shared/languages.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { AsyncSubmitRequest } from "../typescript/src/index.ts";
import { UsageError } from "./exit.ts";
import { openFile, readText, standardInput } from "./files.ts";
import { type FollowedOptions, submitAndFollow } from "./follow.ts";
import { parseNumber, parsePairs, type Terminal } from "./terminal.ts";
import { addCommand, type Declared, given, many, type Tool } from "./tool.ts";

/** Options of commands that make a job. */
interface SubmitOptions extends FollowedOptions {
  input?: string;
  stdin?: string;
  file?: string[];
  metadata?: Record<string, string>;
  jobType?: string;
  timeout?: number;
}

/** How an option of `name=value` pairs is read. */
export const pairs = { many: true, read: parsePairs } as const;

export function addRun(program: Command): void {
  const run = withJobOptions(
    addCommand(program, "run", "run a file, and show its output as it happens")
      .argument("<file>", "a file of code, or - for standard input")
      .argument("[args...]", "all that follows goes to the code")
      .option("-r, --require <package>", "a package to install first (repeatable)", many)
      .option("-l, --language <name>", "its language; default: by the file's ending, else python")
      .option("-i, --input <json>", "the job's input: a JSON object, or @file")
      .option("--stdin <file>", "what the code reads from standard input, or - for this command's")
      .option("-f, --file <path>", "a file at /input/<name>: path or path=name (repeatable)", many),
  );
  run.command.passThroughOptions().addHelpText(
    "after",
    `
Exit code: the code's own; 124 after its time limit, 137 out of memory, 130 if it was cancelled,
125 if the service fails, 126 if it refuses the request.
Dependencies in a "# /// script" block (PEP 723) are installed like --require.`,
  );
  run.does(async (tool, file, words, options) => {
    refuseSharedStdin(file, options);
    const code = await readText(file);
    const language = options.language ?? languageOfFile(file) ?? "python";
    const isPython = language === "python";
    const { dependencies, requiresPython } = isPython ? readScriptMetadata(code) : noMetadata;
    const args = words[0] === "--" ? words.slice(1) : words;
    if (words[0] !== "--") sayWhoseOptions(tool.terminal, run.command, words);
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
  });
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
export function withJobOptions<Words extends unknown[], Options>(
  command: Declared<Words, Options>,
) {
  return withCallOptions(command.option("-t, --job-type <name>", "job type"));
}

/** Those that calls of sessions have, too. */
export function withCallOptions<Words extends unknown[], Options>(
  command: Declared<Words, Options>,
) {
  return command
    .option("--timeout <seconds>", "time limit of the code", parseNumber)
    .option("-m, --metadata <name=value>", "your own words about the job (repeatable)", pairs)
    .option("-o, --out <folder>", "fetch the artifacts into a folder")
    .option("--force", "with --out: replace files that exist")
    .option("-d, --detach", "print the job's id and do not wait");
}

export async function submitFields(
  tool: Tool,
  { input, stdin, file = [], jobType, timeout, metadata }: SubmitOptions,
): Promise<Omit<AsyncSubmitRequest, "code">> {
  return {
    ...(input !== undefined && { input_data: await readInput(input) }),
    ...(stdin !== undefined && { stdin: await readText(stdin, "-f sends a file of any bytes") }),
    ...(file.length > 0 && { files: await uploadAll(tool, file) }),
    ...given({ job_type: jobType, timeout, metadata }),
  };
}

export async function readInput(given: string, what = "--input"): Promise<Record<string, unknown>> {
  const json = given.startsWith("@") ? await readText(given.slice(1)) : given;
  try {
    const value = parseJson(json, { depth: limits.jsonDepthMax });
    if (isJsonObject(value)) return value;
  } catch {
    // Said below.
  }
  throw new UsageError(`${what} must be a JSON object, such as '{"name": "Ada"}', or @file`);
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

/** @throws UsageError if the job type has another Python than the script requires. */
async function checkPython(
  { airlock }: Tool,
  required: string,
  jobType = "default",
): Promise<void> {
  const types = await airlock.api.listJobTypes();
  const type = types.find(({ name }) => name === jobType);
  // The service refuses an unknown job type itself.
  if (!type || satisfiesPython(required, type.python_version)) return;
  const others = types.filter((one) => satisfiesPython(required, one.python_version));
  const hint =
    others.length === 0
      ? "no job type has one (airlock types)"
      : others.map(({ name, python_version }) => `-t ${name} has ${python_version}`).join(", ");
  throw new UsageError(
    `the script requires Python ${required}, and the job type ${jobType} has ${type.python_version}: ${hint}`,
  );
}

const specifier = /^(~=|===?|!=|<=|>=|<|>)\s*v?(\d+(?:\.\d+)*)(\.\*)?[a-z0-9.+-]*$/i;

/**
 * Whether a version of Python satisfies `requires-python` (PEP 440). The version of a job type is mostly just 3.13: a
 * condition on the missing part counts as satisfied.
 *
 * @throws UsageError if `required` is not a list of version specifiers.
 */
export function satisfiesPython(required: string, version: string): boolean {
  const has = version.split(".").map(Number);
  return required.split(",").every((part) => {
    const [, operator, release] = specifier.exec(part.trim()) ?? [];
    if (operator === undefined || release === undefined) {
      throw new UsageError(
        `requires-python in the script's \`# /// script\` block must look like ">=3.11", not "${required}"`,
      );
    }
    return satisfies(has, operator, release.split(".").map(Number), part.includes("*"));
  });
}

function satisfies(has: number[], operator: string, asked: number[], isPrefix: boolean): boolean {
  const compared = isPrefix ? Math.min(has.length, asked.length) : has.length;
  const order =
    has
      .slice(0, compared)
      .map((one, at) => Math.sign(one - (asked[at] ?? 0)))
      .find(Boolean) ?? 0;
  const isOpen = has.length < 3;
  switch (operator) {
    case ">=":
      return order >= 0;
    case ">":
      return order > 0 || (order === 0 && isOpen);
    case "<=":
      return order <= 0;
    case "<":
      return order < 0 || (order === 0 && isOpen && asked.length > has.length);
    case "!=":
      return order !== 0 || (isOpen && !isPrefix);
    case "~=":
      return (
        order >= 0 && asked.slice(0, -1).every((one, at) => at >= has.length || one === has[at])
      );
    default:
      return order === 0;
  }
}

/** What a script says about itself: https://peps.python.org/pep-0723/. */
interface ScriptMetadata {
  dependencies: string[];
  requiresPython?: string | undefined;
}

/** The one pattern that PEP 723 gives. */
const block = /^# \/\/\/ (?<type>[a-zA-Z0-9-]+)$\s(?<content>(?:^#(?:| .*)$\s)+)^# \/\/\/$/gm;

/** Reads the `# /// script` block. Throws UsageError where there are two, or where it is no TOML. */
export function readScriptMetadata(code: string): ScriptMetadata {
  const unix = code.replaceAll("\r\n", "\n");
  const found = [...unix.matchAll(block)].filter(({ groups }) => groups?.["type"] === "script");
  if (found.length > 1) throw new UsageError("the script has two `# /// script` blocks: keep one");
  const [content] = found.map(({ groups }) => groups?.["content"] ?? "");
  if (content === undefined) return { dependencies: [] };
  const toml = content
    .split("\n")
    .map((line) => (line.startsWith("# ") ? line.slice(2) : line.slice(1)))
    .join("\n");
  let table: Record<string, unknown>;
  try {
    table = parse(toml);
  } catch (error) {
    const reason = error instanceof Error ? error.message.split("\n")[0] : "";
    throw new UsageError(`the script's \`# /// script\` block is no TOML: ${reason}`);
  }
  const { dependencies = [], "requires-python": requiresPython } = table;
  if (!Array.isArray(dependencies) || !dependencies.every((one) => typeof one === "string")) {
    throw new UsageError(
      "dependencies in the script's `# /// script` block must be a list of texts",
    );
  }
  return {
    dependencies,
    ...(typeof requiresPython === "string" && { requiresPython }),
  };
}
