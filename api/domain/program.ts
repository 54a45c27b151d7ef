import { type Language, languages } from "../../shared/languages.ts";
import type { JobType } from "../../shared/wire/job-type.ts";
import type { LeasedJob } from "../../shared/wire/agent/lease.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { ExecuteRequest } from "../../shared/wire/client/submission.ts";

/** What a submission runs in place of Python, as the store keeps it. */
export type ProgramChoice = Pick<
  ExecuteRequest,
  "language" | "command" | "compile_command" | "compile_timeout"
>;

/** Undefined if the code is Python. */
export function programOf({
  language = "python",
  command,
  compile_command,
  compile_timeout,
}: ExecuteRequest): ProgramChoice | undefined {
  if (language === "python" && command === undefined) return undefined;
  return {
    ...(command === undefined ? { language } : { command }),
    ...(compile_command !== undefined && { compile_command }),
    ...(compile_timeout !== undefined && { compile_timeout }),
  };
}

/** The languages that jobs of a type may name. The image may lack the program of one. */
export function languagesOf(jobType: Pick<JobType, "languages">): Record<string, Language> {
  return { ...languages, ...jobType.languages };
}

/** The program as an agent runs it; undefined if the job type has no such language. */
export function resolveProgram(
  {
    language,
    command,
    compile_command,
    compile_timeout = limits.compileTimeoutDefaultS,
  }: ProgramChoice,
  jobType: Pick<JobType, "languages">,
): LeasedJob["program"] {
  const found = command
    ? { file: "main", compile: compile_command, run: command }
    : entryOf(languagesOf(jobType), language);
  if (found === undefined) return undefined;
  const { file, compile = [], run } = found;
  const named = (argument: string): string => argument.replaceAll("{file}", `/code/${file}`);
  return {
    file,
    compile: compile.map(named),
    compile_timeout_s: compile_timeout,
    run: run.map(named),
  };
}

function entryOf(known: Record<string, Language>, name = ""): Language | undefined {
  return Object.hasOwn(known, name) ? known[name] : undefined;
}
