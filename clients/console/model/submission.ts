import { isJsonObject, parseJson } from "../../../shared/json.ts";
import { limits } from "../../../shared/wire/limits.ts";
import type { ExecutionRecord } from "../../typescript/src/generated.ts";

/** A request that makes a job. */
export interface Call {
  path: string;
  body: Record<string, unknown>;
}

interface Submission {
  code: string;
  input: Record<string, unknown>;
  jobType: string;
  language?: string | undefined;
  args: string[];
  stdin: string;
  timeout: number | undefined;
  files: { name: string; file_id: string }[];
}

/** What the playground submits, to be answered with the result. */
export function executeCall(submission: Submission): Call {
  const { code, input, jobType, language = "python", args, stdin, timeout, files } = submission;
  return {
    path: "/execute",
    body: {
      code,
      ...(Object.keys(input).length > 0 && { input_data: input }),
      ...(args.length > 0 && { args }),
      ...(stdin !== "" && { stdin }),
      ...(files.length > 0 && { files: files.map(({ name, file_id }) => ({ name, file_id })) }),
      ...(language !== "python" && { language }),
      ...(jobType !== "default" && { job_type: jobType }),
      ...(timeout !== undefined && { timeout }),
    },
  };
}

/** The call as a command of a shell. */
export function curl(url: string, { path, body }: Call, hasKey: boolean): string {
  const key = hasKey ? ` \\\n  -H "Authorization: Bearer $AIRLOCK_KEY"` : "";
  const json = JSON.stringify(body, null, 2).replaceAll("'", String.raw`'\''`);
  return `curl -sS ${url}${path}${key} \\\n  -H 'Content-Type: application/json' \\\n  -d '${json}'\n`;
}

interface Submitted {
  code: string;
  input: Record<string, unknown>;
}

/** The request that made an execution, from its record with `view=all`. Files are named, without their bytes. */
export function callThatMade(record: ExecutionRecord, { code, input }: Submitted): Call {
  const { parent_execution_id: parent, relationship, requirements = [], session_id } = record;
  // Without events, nobody would know whose calls to answer.
  const execute = record.mode === "sync" && !record.tools ? "/execute" : "/execute/async";
  const ofAll = {
    timeout: record.timeout,
    idempotency_key: record.idempotency_key ?? undefined,
    stdin: record.stdin,
    metadata: record.metadata,
    queue_timeout: record.queue_timeout,
    callback_url: record.callback_url,
    tools: record.tools,
    tool_timeout: record.tool_timeout,
  };
  const input_data = Object.keys(input).length > 0 ? input : undefined;
  if (session_id) {
    const { command, context } = record;
    const run = command ? { command } : { code };
    return {
      path: `/sessions/${session_id}${execute}`,
      body: named({ ...run, context, input_data, ...ofAll }),
    };
  }
  const given = {
    job_type: record.job_type,
    args: record.args,
    run_at: record.run_at,
    max_attempts: record.max_attempts,
    ...ofAll,
  };
  if (parent && relationship) {
    const path = `/jobs/${parent}/${relationship}`;
    return { path, body: named({ ...(relationship === "fork" && { code }), ...given }) };
  }
  const files = filesOf(record).map(placeholder);
  return {
    path: execute,
    body: named({
      code,
      input_data,
      files: files.length > 0 ? files : undefined,
      language: record.language,
      command: record.command,
      compile_command: record.compile_command,
      compile_timeout: record.compile_timeout,
      results: record.results && true,
      startup_timeout: record.startup_timeout,
      requirements: requirements.length > 0 ? requirements : undefined,
      ...given,
    }),
  };
}

export const placeholder = ({ name }: { name: string }) => ({
  name,
  file_id: `<file_id of ${name}>`,
});

/** The files that it was given, without its own code and input. */
export const filesOf = ({ input_artifacts = [] }: ExecutionRecord) =>
  input_artifacts.filter(({ name }) => !name.startsWith("_"));

/** The fields that have a value. */
export function named(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

/** Splits arguments as a shell does: at blanks that are neither quoted nor after a backslash. */
export function splitArguments(text: string): { args: string[] } | { problem: string } {
  const args: string[] = [];
  let at = 0;
  while (at < text.length) {
    if (/\s/.test(text[at]!)) {
      at += 1;
      continue;
    }
    let word = "";
    while (at < text.length && !/\s/.test(text[at]!)) {
      const char = text[at]!;
      if (char === "'" || char === '"') {
        const end = endOfQuote(text, at);
        if (end === -1) return { problem: `The arguments have a ${char} that is not closed.` };
        const inside = text.slice(at + 1, end);
        word += char === "'" ? inside : inside.replaceAll(/\\(["\\])/g, "$1");
        at = end + 1;
      } else if (char === "\\" && at + 1 < text.length) {
        word += text[at + 1]!;
        at += 2;
      } else {
        word += char;
        at += 1;
      }
    }
    args.push(word);
  }
  return { args };
}

function endOfQuote(text: string, from: number): number {
  const quote = text[from];
  for (let at = from + 1; at < text.length; at++) {
    if (text[at] === quote) return at;
    if (text[at] === "\\" && quote === '"') at += 1;
  }
  return -1;
}

/** A text that `splitArguments` splits into these arguments. */
export const joinArguments = (args: readonly string[]): string =>
  args
    .map((arg) => (/^[\w@%+=:,./-]+$/.test(arg) ? arg : `'${arg.replaceAll("'", `'"'"'`)}'`))
    .join(" ");

/** The input of a job as the editor has it; says what is wrong with it. */
export function readInput(text: string): { input: Record<string, unknown> } | { problem: string } {
  if (text.trim() === "") return { input: {} };
  try {
    const input = parseJson(text, { depth: limits.jsonDepthMax });
    if (isJsonObject(input)) return { input };
    return { problem: 'The input must be a JSON object, such as {"name": "Ada"}.' };
  } catch (error) {
    return { problem: `The input is not JSON: ${(error as Error).message}` };
  }
}

/** JSON in lines, for people; anything else as it is. */
export function laidOut(text: string): string {
  try {
    return JSON.stringify(parseJson(text, { depth: limits.jsonDepthMax }), null, 2);
  } catch {
    return text;
  }
}

/** What the playground begins with. */
export const exampleCode = `import json
import time

with open("/input/data.json") as file:
    data = json.load(file)

for step in range(1, data["steps"] + 1):
    print(f"step {step} of {data['steps']}", flush=True)
    time.sleep(0.5)

with open("/output/result.json", "w") as file:
    json.dump({"steps": data["steps"]}, file)
`;
export const exampleInput = `{
  "steps": 5
}
`;
