import { z } from "zod";
import { fromBase64 } from "../../shared/bytes.ts";
import { languages, python } from "../../shared/languages.ts";
import {
  type Call,
  execute,
  type Facade,
  inWorkingFolder,
  isOwnError,
  parseBody,
  type Ran,
  Refusal,
  signalOf,
} from "./facade.ts";

/** A language that the image has, as Piston lists it. */
interface Runtime {
  readonly language: string;
  readonly version: string;
  readonly aliases: readonly string[];
  /** Our name. */
  readonly ours: string;
}

const freshMs = 600_000;

/**
 * Piston's GET /api/v2/runtimes and POST /api/v2/execute. Source: github.com/engineer-man/piston, its description of API v2,
 * api/src/api/v2.js and api/src/job.js.
 *
 * @param mayWait Whether a request may wait for another one.
 */
export function piston(mayWait: boolean): Facade {
  let known: { runtimes: Runtime[]; untilMs: number } | undefined;
  let pending: Promise<Runtime[]> | undefined;
  async function runtimesOf(call: Call): Promise<Runtime[]> {
    if (known !== undefined && performance.now() <= known.untilMs) return known.runtimes;
    const runtimes = await (mayWait ? shared(call) : findRuntimes(call));
    known = { runtimes, untilMs: performance.now() + freshMs };
    return runtimes;
  }
  /** Further requests wait for the first one. If the key of that is void, each asks for itself. */
  async function shared(call: Call): Promise<Runtime[]> {
    if (pending) return pending.catch(() => findRuntimes(call));
    // The client of the first request may hang up.
    pending = findRuntimes({ ...call, signal: new AbortController().signal });
    return pending.finally(() => (pending = undefined));
  }
  return {
    async answer(call) {
      const { method, path } = call;
      if (path === "/api/v2/runtimes" && method === "GET") {
        const runtimes = await runtimesOf(call);
        return Response.json(
          runtimes.map(({ language, version, aliases }) => ({ language, version, aliases })),
        );
      }
      if (path === "/api/v2/execute" && method === "POST") {
        return run(call, await runtimesOf(call));
      }
      throw new Refusal(404, "Not Found: this service has /api/v2/runtimes and /api/v2/execute");
    },
    refuse(status, message) {
      return Response.json({ message }, { status: status === 422 ? 400 : status });
    },
  };
}

const Milliseconds = z.number().nullish();
const Execute = z.object({
  language: z.string(),
  version: z.string(),
  files: z
    .array(
      z.object({
        name: z.string().nullish(),
        content: z.string(),
        encoding: z.enum(["utf8", "base64", "hex"]).nullish(),
      }),
    )
    .min(1),
  stdin: z.string().nullish(),
  args: z.array(z.string()).nullish(),
  compile_timeout: Milliseconds,
  run_timeout: Milliseconds,
});
type Execute = z.infer<typeof Execute>;

const [defaultCompileMs, defaultRunMs, holdMs] = [10_000, 3000, 10_000];

async function run(call: Call, runtimes: Runtime[]): Promise<Response> {
  const asked = await parseBody(Execute, await call.text(), 400);
  const runtime = runtimes.find(
    ({ language, aliases, version }) =>
      [language, ...aliases].includes(asked.language) && matches(asked.version, version),
  );
  if (runtime === undefined) {
    throw new Refusal(400, `${asked.language}-${asked.version} runtime is unknown`);
  }
  const { stdin, args, run_timeout, compile_timeout } = asked;
  const [main = "", ...more] = asked.files.map(textOf);
  const entry = languages[runtime.ours];
  if (more.length > 0 && entry?.compile) {
    throw new Refusal(400, `files: a program in ${asked.language} has one file here`);
  }
  const compileMs = { compile_timeout: seconds(compile_timeout ?? defaultCompileMs) };
  const job = {
    code: main,
    ...programOf(runtime.ours, more.length > 0, nameOf(asked.files, 0)),
    ...(entry?.compile && compileMs),
    timeout: seconds(run_timeout ?? defaultRunMs),
    ...(stdin ? { stdin } : {}),
    ...(args?.length && { args }),
    files: more.map((text, n) => ({ name: `work/${nameOf(asked.files, n + 1)}`, text })),
  };
  const result = await execute(call, job, holdMs);
  if (isOwnError(result)) throw new Refusal(500, result.error!.message);
  const usage = usageOf(result);
  const { compile } = result;
  const isCompiled = result.error?.type !== "compile_error";
  const nothing = { code: null, signal: null, message: null, status: null };
  return Response.json({
    language: runtime.language,
    version: runtime.version,
    ...(compile && {
      compile: {
        ...streams(compile),
        ...nothing,
        code: compile.exit_code,
        signal: compile.exit_code === null ? "SIGKILL" : null,
        status: isCompiled ? null : compile.exit_code === null ? "TO" : "RE",
        wall_time: compile.ms,
        cpu_time: null,
        memory: null,
      },
    }),
    run: isCompiled
      ? { ...streams(result), ...endOf(result), ...usage }
      : { ...streams({ stdout: "", stderr: "" }), ...nothing, ...usage },
  });
}

const streams = ({ stdout, stderr }: { stdout: string; stderr: string }) => {
  return { stdout, stderr, output: stdout + stderr };
};

const signals: Readonly<Record<number, string>> = {
  6: "SIGABRT",
  7: "SIGBUS",
  8: "SIGFPE",
  9: "SIGKILL",
  11: "SIGSEGV",
  13: "SIGPIPE",
  15: "SIGTERM",
};

function endOf(result: Ran): object {
  const { exit_code, error } = result;
  if (error?.type === "execution_timeout") {
    return { code: null, signal: "SIGKILL", message: error.message, status: "TO" };
  }
  const signal = signals[signalOf(result) ?? 0];
  if (signal !== undefined) {
    return { code: null, signal, message: error?.message ?? null, status: "SG" };
  }
  const isWell = exit_code === 0;
  return { code: exit_code, signal: null, message: null, status: isWell ? null : "RE" };
}

function usageOf({ execution_time, resource_usage: usage }: Ran): object {
  return {
    cpu_time: usage?.cpu_time_ms ?? null,
    wall_time: Math.round(execution_time * 1000),
    memory: usage ? Math.round(usage.max_rss_mb * 1024 ** 2) : null,
  };
}

function seconds(ms: number): number {
  return Math.max(1, Math.ceil(ms / 1000));
}

/** @throws Refusal 400 */
function textOf({ content, encoding }: Execute["files"][number], n: number): string {
  if (!encoding || encoding === "utf8") return content;
  if (encoding === "base64") {
    try {
      return new TextDecoder().decode(fromBase64(content));
    } catch {
      throw new Refusal(400, `files.${n}.content: is not base64`);
    }
  }
  const bytes = Uint8Array.from(content.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
  return new TextDecoder().decode(bytes);
}

/** Further files are in the working folder, which a shell fills first. */
function programOf(name: string, hasMore: boolean, file: string): object {
  if (!hasMore) return name === "python" ? {} : { language: name };
  return inWorkingFolder((languages[name] ?? python).run, file);
}

function nameOf(files: Execute["files"], n: number): string {
  return files[n]?.name || `file${n}.code`;
}

/** Whether a version is the asked one: `*`, or the beginning of its numbers. */
function matches(asked: string, version: string): boolean {
  const wanted = asked.replace(/^[=^~v]+/, "").replace(/(\.?[x*])+$/, "");
  return wanted === "" || version === wanted || version.startsWith(`${wanted}.`);
}

/** Piston's names. */
const names: Readonly<Record<string, readonly [name: string, ...aliases: string[]]>> = {
  python: ["python", "py", "py3", "python3"],
  bash: ["bash", "sh"],
  c: ["c", "gcc"],
  cpp: ["c++", "cpp", "g++"],
  go: ["go", "golang"],
  java: ["java"],
  javascript: ["javascript", "js", "node", "node-javascript", "node-js"],
  typescript: ["typescript", "ts", "node-ts"],
  lua: ["lua"],
  perl: ["perl", "pl"],
  php: ["php"],
  r: ["rscript", "r"],
  ruby: ["ruby", "rb"],
  rust: ["rust", "rs"],
};

/** Asks the image, in one job, which languages' programs it has. */
async function findRuntimes(call: Call): Promise<Runtime[]> {
  const lines = Object.keys(names).map((name) => {
    const { compile, run, tellVersion = ["--version"] } = languages[name] ?? python;
    // An option of the program that it does not know fails here, too.
    const program = compile?.slice(0, 1) ?? run.filter((word) => word !== "{file}");
    const ask = [...program, ...tellVersion].join(" ");
    return `said=$(${ask} 2>&1) && printf '%s %s\\n' ${name} "$(echo "$said" | tr '\\n' ' ')"`;
  });
  const job = { command: ["sh", "{file}"], code: `${lines.join("\n")}\ntrue\n`, timeout: 30 };
  const { stdout, error } = await execute(call, job, holdMs);
  if (error !== null)
    throw new Refusal(500, `The languages of the image are not known: ${error.message}`);
  return stdout.split("\n").flatMap((line) => {
    const [ours = ""] = line.split(" ");
    const [language, ...aliases] = names[ours] ?? [];
    const version = /\d+\.\d+(\.\d+)?/.exec(line.slice(ours.length))?.[0];
    if (language === undefined || version === undefined) return [];
    const whole = version.split(".").length === 2 ? `${version}.0` : version;
    return [{ language, version: whole, aliases, ours }];
  });
}
