import { z } from "zod";
import { parseBytes } from "../../shared/bytes.ts";
import { type Language, languages, python } from "../../shared/languages.ts";
import type { Compilation, SyncResult } from "../../shared/wire/executions.ts";
import type { JobTypeView } from "../../shared/wire/job-types.ts";
import { limits } from "../../shared/wire/limits.ts";
import { Session } from "../../shared/wire/sessions.ts";
import {
  artifactPath,
  ask,
  asThere,
  type Call,
  contentOf,
  exceptionOf,
  execute,
  type Facade,
  fillWorkingFolder,
  isOwnError,
  parseBody,
  partsOf,
  post,
  Ran,
  Refusal,
  sessionFile,
  shellCommand,
  shellWords,
  signalOf,
} from "./facade.ts";

/**
 * SandboxFusion's POST /run_code and /run_jupyter, and GET /v1/ping. Source: github.com/bytedance/SandboxFusion,
 * sandbox/server/sandbox_api.py and sandbox/runners/base.py.
 */
export const sandboxFusion: Facade = {
  async answer(call) {
    if (call.path === "/v1/ping" && call.method === "GET") return Response.json("pong");
    if (call.path === "/run_code" && call.method === "POST") return runCode(call);
    if (call.path === "/run_jupyter" && call.method === "POST") return runJupyter(call);
    throw new Refusal(404, "Not Found: this service has /run_code, /run_jupyter and /v1/ping.");
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
  fetch_files: z.array(z.string()).max(limits.artifactCountMax).nullish(),
});
type RunCode = z.infer<typeof RunCode>;

const defaultS = 10;
/** SandboxFusion's is 10 s, in an image with a compiled Go library. Without it, compiling the library alone takes 10 s. */
const defaultCompileS = (language: string): number => (language === "go" ? 30 : defaultS);
/**
 * Clients wait for an answer as long as compiler and code may take, and 10 s. So long a request may wait for room, and
 * so long its job may take.
 */
const [holdS, lastS] = [5, 9];

/** Our names of its languages; others have the same name. */
const names: Record<string, string> = {
  nodejs: "javascript",
  js: "javascript",
  ts: "typescript",
  R: "r",
};

/** How SandboxFusion runs a language, as texts of a shell: {main} is the file that has the code. */
type Runner = { readonly file: string; readonly compile?: string; readonly run: string };

/**
 * Languages that SandboxFusion compiles or runs with other options than `language` does: verdicts depend on them. Source:
 * its sandbox/runners/major.py. Mono and Node take the place of the .NET and tsx of its image.
 */
const runners: Readonly<Record<string, Runner>> = {
  cpp: {
    file: "main.cpp",
    compile: `for lib in crypto ssl; do
  [ "$(g++ -print-file-name=lib$lib.so)" = lib$lib.so ] || set -- "$@" -l$lib
done
exec g++ -std=c++17 {main} -o /tmp/test "$@" -lpthread`,
    run: "/tmp/test",
  },
  go_test: { file: "main_test.go", run: "go test {main}" },
  java: {
    file: "Main.java",
    compile: `javac -cp "$(printf '%s:' *.jar)." -d /tmp/classes {main}`,
    run: `java -cp "$(printf '%s:' *.jar)/tmp/classes:." -ea Main`,
  },
  php: { file: "main.php", run: "php -f {main}" },
  pytest: { file: "test_main.py", run: "pytest {main}" },
  rust: { file: "main.rs", compile: "rustc {main} -o /tmp/test", run: "/tmp/test" },
  typescript: {
    file: "main.ts",
    run: `$(command -v tsx || echo node --experimental-transform-types --disable-warning=ExperimentalWarning) {main}`,
  },
};

async function runCode(call: Call): Promise<Response> {
  const asked = await parseBody(RunCode, await call.text());
  const { code, run_timeout, compile_timeout, stdin, args, fetch_files } = asked;
  const [runS, compileS] = [
    run_timeout ?? defaultS,
    compile_timeout ?? defaultCompileS(asked.language),
  ];
  const program = programOf(asked, compileS);
  await checkMemory(call, asked.memory_limit_MB ?? -1);
  const result = await execute(
    call,
    {
      code: asked.language === "php" && !code.includes("<?php") ? `<?php\n${code}` : code,
      ...program,
      timeout: Math.ceil(runS),
      ...(stdin ? { stdin } : {}),
      ...(args?.length && { args }),
      files: filesOf(asked),
    },
    (compileS + runS + holdS) * 1000,
    (compileS + runS + lastS) * 1000,
  );
  if (isOwnError(result)) {
    return Response.json(answerOf("SandboxError", result.error!.message, null, null, {}));
  }
  const compiled = result.compile && compileResult(result.compile, compileS);
  const isLate = result.error?.type === "execution_timeout";
  const ran = result.error?.type !== "compile_error" && {
    status: isLate ? "TimeLimitExceeded" : "Finished",
    execution_time: result.execution_time,
    return_code: isLate ? null : returnCode(result),
    stdout: result.stdout,
    stderr: result.stderr,
  };
  const files: Record<string, string> = {};
  for (const name of fetch_files ?? []) {
    const [top, ...parts] = partsOf("/output", name);
    const artifact = top === "output" ? parts.join("/") : "";
    const bytes =
      artifact === "" ? undefined : await contentOf(call, artifactPath(result.job_id, artifact));
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
function returnCode(result: SyncResult): number | null {
  const signal = signalOf(result);
  return signal === undefined ? result.exit_code : -signal;
}

/** Our record has the same exit code, none, for a compiler that was late and for one that was killed. */
function compileResult({ exit_code, ms, stdout, stderr }: Compilation, limitS: number) {
  const isLate = exit_code === null && ms >= Math.ceil(limitS) * 1000;
  return {
    status: isLate ? "TimeLimitExceeded" : "Finished",
    execution_time: ms / 1000,
    return_code: isLate ? null : (exit_code ?? -9),
    stdout,
    stderr,
  };
}

/** A program that needs more than the job type has would get a wrong verdict. */
async function checkMemory(call: Call, askedMb: number): Promise<void> {
  if (askedMb <= 0) return;
  const { memory_limit } = (await ask(call, "/job-types/default")) as JobTypeView;
  if (askedMb * 1024 ** 2 <= parseBytes(memory_limit)) return;
  const words = `must be at most ${memory_limit}, the memory_limit of the job type default`;
  throw new Refusal(422, `memory_limit_MB: ${words}`);
}

/** What runs a request's code. A shell first puts the request's files into the working folder. */
function programOf({ language, files }: RunCode, compileS: number): object {
  const name = names[language] ?? language;
  const known = name === "python" ? python : languages[name];
  const runner = runners[name] ?? (known && runnerOf(known));
  if (runner === undefined) {
    const all = ["python", ...Object.keys({ ...languages, ...runners })].sort().join(", ");
    throw new Refusal(422, `language: ${language} is not one of ${all}`);
  }
  const limit = runner.compile !== undefined && {
    compile_timeout: Math.min(limits.compileTimeoutMaxS, Math.ceil(compileS)),
  };
  const hasFiles = Object.keys(files ?? {}).length > 0;
  if (!hasFiles && runners[name] === undefined) {
    return known === python ? {} : { language: name, ...limit };
  }
  const main = hasFiles ? runner.file : `/tmp/${runner.file}`;
  const place = `${hasFiles ? `${fillWorkingFolder} && ` : ""}cp {file} ${main} && `;
  const [compile, run] = [runner.compile, `exec ${runner.run} "$@"`].map((text) =>
    text?.replaceAll("{main}", main),
  );
  if (compile === undefined) return { command: shellCommand(`${place}${run}`) };
  return {
    compile_command: shellCommand(`${place}${compile}`),
    command: shellCommand(run!),
    ...limit,
  };
}

function runnerOf({ file, compile, run }: Language): Runner {
  return { file, run: textOf(run), ...(compile && { compile: textOf(compile) }) };
}

const textOf = (words: readonly string[]): string =>
  shellWords(words.map((word) => word.replaceAll("{file}", "{main}")));

function filesOf({ files }: RunCode): object[] {
  return Object.entries(files ?? {}).flatMap(([name, content]) =>
    content === null ? [] : [{ name: `work/${name}`, base64: content }],
  );
}

const RunJupyter = z.object({
  cells: z.array(z.string()).max(limits.batchMax),
  /** 0: as long as all cells together. */
  cell_timeout: z.number().min(0).max(86_400).default(0),
  total_timeout: Seconds.default(45),
  kernel: z.literal("python3").default("python3"),
  files: z.record(z.string(), z.string().nullable()).default({}),
  fetch_files: z.array(z.string()).max(limits.artifactCountMax).default([]),
});
type RunJupyter = z.infer<typeof RunJupyter>;

/** Clients wait so long for a session, besides the time of their cells. */
const waitS = 5;

/**
 * SandboxFusion's POST /run_jupyter: a session for one request. A cell whose code fails stops no other. Source:
 * github.com/bytedance/SandboxFusion, sandbox/server/sandbox_api.py.
 */
async function runJupyter(call: Call): Promise<Response> {
  const asked = await parseBody(RunJupyter, await call.text());
  const lifetime = Math.ceil(asked.total_timeout) + 60;
  const made = await post(call, "/sessions", { lifetime, idle_timeout: null, wait: waitS });
  const { session_id, status, message } = Session.parse(made);
  try {
    if (status !== "ready") throw new Refusal(503, message ?? "No agent has room for a session.");
    return Response.json(await runCells(call, session_id, asked));
  } finally {
    // Also for a client that has hung up.
    await call.api(`/sessions/${session_id}`, { method: "DELETE" });
  }
}

async function runCells(call: Call, session: string, asked: RunJupyter): Promise<object> {
  const endMs = performance.now() + asked.total_timeout * 1000;
  const run = async (fields: object) => {
    const ran = await post(call, `/sessions/${session}/execute`, fields);
    call.onRunning();
    return ran;
  };
  const files = Object.entries(asked.files).flatMap(([name, base64]) =>
    base64 === null ? [] : [{ name, base64, to: "work" }],
  );
  if (files.length > 0) await run({ files });
  const cells: object[] = [];
  for (const code of asked.cells) {
    const leftS = (endMs - performance.now()) / 1000;
    if (leftS <= 0) return cellsAnswer("Failed", { driver: late(asked) });
    const timeout = Math.ceil(Math.min(leftS, asked.cell_timeout || leftS));
    const ran = Ran.parse(await run({ code: code || "\n", timeout }));
    if (ran.status === "timeout" && performance.now() >= endMs) {
      return cellsAnswer("Failed", { driver: late(asked) });
    }
    // What the service did to a cell is no verdict on it.
    if (isOwnError(ran)) return cellsAnswer("SandboxError", { message: ran.error!.message });
    cells.push(cellOf(asThere(ran)));
  }
  const fetched: Record<string, string> = {};
  for (const path of asked.fetch_files) {
    const bytes = await contentOf(call, sessionFile(session, path));
    if (bytes !== undefined) fetched[path] = bytes;
  }
  return cellsAnswer("Success", { driver: finished, cells, files: fetched });
}

function cellOf(ran: Ran): object {
  const { stdout, stderr, results = [] } = ran;
  const exception = exceptionOf(ran, stderr);
  return {
    stdout,
    stderr,
    display: results.map(({ data }) => data),
    error: exception
      ? [{ ename: exception.name, evalue: exception.value, traceback: [exception.traceback] }]
      : [],
  };
}

const cellsAnswer = (status: string, fields: object): object => {
  return {
    status,
    message: "",
    driver: null,
    cells: [],
    executor_pod_name: null,
    files: {},
    ...fields,
  };
};

const driver = { execution_time: null, return_code: null, stdout: "", stderr: "" };
const finished = { ...driver, status: "Finished", return_code: 0 };
const late = ({ total_timeout }: RunJupyter) => {
  return { ...driver, status: "TimeLimitExceeded", execution_time: total_timeout };
};
