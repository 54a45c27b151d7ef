import { z } from "zod";
import { languages, python } from "../../shared/languages.ts";
import {
  artifact,
  type Call,
  execute,
  type Facade,
  inWorkingFolder,
  isOwnError,
  parseBody,
  Refusal,
} from "./facade.ts";

/**
 * SandboxFusion's POST /run_code and GET /v1/ping. Source: github.com/bytedance/SandboxFusion,
 * sandbox/server/sandbox_api.py and sandbox/runners/base.py.
 */
export const sandboxFusion: Facade = {
  async answer(call) {
    if (call.path === "/v1/ping" && call.method === "GET") return Response.json("pong");
    if (call.path === "/run_code" && call.method === "POST") return runCode(call);
    throw new Refusal(404, "Not Found: this service has POST /run_code and GET /v1/ping.");
  },
  refuse(status, message) {
    // The client repeats 504, and takes each other error for a failed verdict.
    if (status === 429 || status === 503)
      return Response.json({ detail: message }, { status: 504 });
    if (status !== 422) return Response.json({ detail: message }, { status });
    const detail = [{ loc: ["body"], msg: message, type: "value_error" }];
    return Response.json({ detail }, { status });
  },
};

const Seconds = z.number().positive().max(86_400);
const RunCode = z.object({
  code: z.string(),
  language: z.string(),
  compile_timeout: Seconds.nullish(),
  run_timeout: Seconds.nullish(),
  memory_limit_MB: z.number().nullish(),
  stdin: z.string().nullish(),
  args: z.array(z.string()).nullish(),
  files: z.record(z.string(), z.string().nullable()).nullish(),
  fetch_files: z.array(z.string()).nullish(),
});
type RunCode = z.infer<typeof RunCode>;

const defaultS = 10;
/** Of the memory that a job type has at least. */
const mostMemoryMb = 32;

/** Our names of its languages; others have the same name. */
const names: Record<string, string> = { nodejs: "javascript", ts: "typescript", R: "r" };

async function runCode(call: Call): Promise<Response> {
  const asked = parseBody(RunCode, call.body);
  const { code, run_timeout, compile_timeout, stdin, args, fetch_files } = asked;
  const [runS, compileS] = [run_timeout ?? defaultS, compile_timeout ?? defaultS];
  const hasLimit = (asked.memory_limit_MB ?? -1) > 0;
  if (hasLimit && asked.memory_limit_MB! < mostMemoryMb) {
    throw new Refusal(422, "memory_limit_MB: a job type has at least 32 MB; its own limit holds.");
  }
  const program = programOf(asked);
  const result = await execute(
    call,
    {
      // Theirs runs empty code, ours refuses it.
      code: code === "" ? "\n" : code,
      ...program,
      timeout: Math.ceil(runS),
      ...(stdin ? { stdin } : {}),
      ...(args?.length && { args }),
      files: filesOf(asked),
    },
    (compileS + runS + 5) * 1000,
  );
  if (result.error?.type === "timeout") throw new Refusal(504, result.error.message);
  if (isOwnError(result)) {
    return Response.json(answerOf("SandboxError", result.error!.message, null, null, {}));
  }
  const compiled = result.compile && {
    status: result.compile.exit_code === null ? "TimeLimitExceeded" : "Finished",
    execution_time: result.compile.ms / 1000,
    return_code: result.compile.exit_code,
    stdout: result.compile.stdout,
    stderr: result.compile.stderr,
  };
  const isLate = result.error?.type === "execution_timeout";
  const ran = result.error?.type !== "compile_error" && {
    status: isLate ? "TimeLimitExceeded" : "Finished",
    execution_time: result.execution_time,
    return_code: isLate ? null : returnCode(result.exit_code),
    stdout: result.stdout,
    stderr: result.stderr,
  };
  const files: Record<string, string> = {};
  for (const name of fetch_files ?? []) {
    const bytes = await artifact(call, result.job_id, name);
    if (bytes !== undefined) files[name] = bytes;
  }
  const isWell = ran && !isLate && result.exit_code === 0;
  return Response.json(
    answerOf(isWell ? "Success" : "Failed", "", compiled ?? null, ran || null, files),
  );
}

function answerOf(status: string, message: string, compiled: unknown, ran: unknown, files: object) {
  return {
    status,
    message,
    compile_result: compiled,
    run_result: ran,
    executor_pod_name: null,
    files,
  };
}

/** Theirs is that of Python's subprocess: minus the number of the signal. */
function returnCode(code: number | null): number | null {
  return code !== null && code > 128 && code <= 128 + 64 ? 128 - code : code;
}

/** Their files are in the working folder, which a shell fills first. */
function programOf({ language, compile_timeout, files }: RunCode): object {
  const name = names[language] ?? language;
  const known = name === "python" ? undefined : languages[name];
  if (name !== "python" && known === undefined) {
    const all = ["python", ...Object.keys(languages)].sort().join(", ");
    throw new Refusal(422, `language: ${language} is not one of ${all}`);
  }
  const compile = { compile_timeout: Math.min(300, Math.ceil(compile_timeout ?? defaultS)) };
  if (Object.keys(files ?? {}).length === 0) {
    return known === undefined ? {} : { language: name, ...(known.compile && compile) };
  }
  if (known?.compile) throw new Refusal(422, `files: ${language} is compiled and gets no files`);
  const { file, run } = known ?? python;
  return inWorkingFolder(run, file);
}

function filesOf({ files }: RunCode): object[] {
  return Object.entries(files ?? {}).flatMap(([name, content]) =>
    content === null ? [] : [{ name: `work/${name}`, base64: content }],
  );
}
