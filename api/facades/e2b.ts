import { z } from "zod";
import { parseJson } from "../../shared/json.ts";
import { type EventData, type JobEvent, SyncResult } from "../../shared/wire/executions.ts";
import { limits } from "../../shared/wire/limits.ts";
import { defaultContext, SessionContext } from "../../shared/wire/sessions.ts";
import { control, running, type Service } from "./e2b-control.ts";
import {
  errorOf,
  failedStream,
  files,
  filesystem,
  homeFolder,
  reasonOfCut,
  refuseCall,
  run,
  start,
  streamed,
  streamType,
  toOurs,
} from "./e2b-envd.ts";
import { ask, type Call, exceptionOf, type Facade, parseBody, post, Refusal } from "./facade.ts";

const sandboxHeader = "E2b-Sandbox-Id";
/** The second one is what calls about contexts bring. */
const tokenHeaders = ["X-Access-Token", "E2B-Traffic-Access-Token"];

/**
 * E2B's sandboxes: their control plane, and of each sandbox the code interpreter, files and commands. Source:
 * github.com/e2b-dev/infra, spec/openapi.yml and packages/envd/spec; npm's e2b and @e2b/code-interpreter.
 */
export function e2b(service: Service): Facade {
  return {
    async keyOf(headers) {
      const key = headers.get("X-Api-Key");
      if (key !== null) return key;
      const token = tokenHeaders.map((name) => headers.get(name)).find((value) => value !== null);
      const session = headers.get(sandboxHeader);
      if (token == null || session === null) return undefined;
      return service.tokens.open(token, session);
    },
    async answer(call) {
      if (/^(\/v2)?\/sandboxes(\/|$)/.test(call.path)) {
        // A token is for the calls of its sandbox only.
        if (!call.headers.has("X-Api-Key")) throw new Refusal(401, "Send the header X-API-Key.");
        return control(call, service);
      }
      return data(call, service, encodeURIComponent(call.headers.get(sandboxHeader) ?? ""));
    },
    refuse(status, message) {
      const code = status === 422 ? 400 : status === 503 ? 429 : status;
      const headers = code === 429 ? { "Retry-After": "2" } : {};
      return Response.json({ code, message }, { status: code, headers });
    },
  };
}

/** The data plane of a sandbox. Each of its services has errors of its own form. */
async function data(call: Call, service: Service, session: string): Promise<Response> {
  const isStream = call.headers.get("Content-Type")?.startsWith(streamType) ?? false;
  try {
    return await answerInside(call, service, session);
  } catch (thrown) {
    if (!(thrown instanceof Refusal)) throw thrown;
    const error = await explain(call, session, thrown);
    if (isStream) return failedStream(error);
    if (rpcPath.test(call.path)) return refuseCall(errorOf(error));
    // Clients show the whole text.
    const { message, status } = error;
    if (/^\/(execute$|contexts)/.test(call.path)) return new Response(message, { status });
    throw error;
  }
}

/** A call whose sandbox is gone is refused for that. The sandbox is not looked up before, which would cost each call. */
async function explain(call: Call, session: string, refusal: Refusal): Promise<Refusal> {
  if (![400, 404, 409, 422].includes(refusal.status)) return refusal;
  try {
    await requireRunning(call, session);
  } catch (error) {
    if (error instanceof Refusal) return error;
  }
  return refusal;
}

/** @throws Refusal 502, which clients know. */
async function requireRunning(call: Call, session: string): Promise<void> {
  await running(call, session).catch((error: unknown) => {
    const isGone = error instanceof Refusal && error.status === 404;
    throw isGone ? new Refusal(502, "The sandbox was not found") : error;
  });
}

const rpcPath = /^\/(filesystem\.Filesystem|process\.Process)\/(\w+)$/;

async function answerInside(call: Call, service: Service, session: string): Promise<Response> {
  const [, plane, method = ""] = rpcPath.exec(call.path) ?? [];
  if (plane === "filesystem.Filesystem") return filesystem(call, session, method);
  if (method === "Start") return start(call, service, session);
  const [first = ""] = call.path.slice(1).split("/");
  if (call.path === "/health") {
    await requireRunning(call, session);
    return new Response(null, { status: 204 });
  }
  if (call.path === "/execute" && call.method === "POST") return execute(call, service, session);
  if (first === "contexts") return contexts(call, session);
  if (call.path === "/files") return files(call, session);
  throw new Refusal(501, `This service has no ${call.method} ${call.path}.`);
}

const Execute = z.object({
  code: z.string(),
  context_id: z.string().nullish(),
  language: z.string().nullish(),
  env_vars: z.record(z.string(), z.string()).nullish(),
});

/** Runs code as a cell; the answer is a line for each thing that happens. */
export async function execute(call: Call, service: Service, session: string): Promise<Response> {
  const { code, context_id, language, env_vars } = await parseBody(Execute, await call.text(), 400);
  const fields = {
    ...programOf(code, language),
    context: context_id ?? defaultContext,
    timeout: service.maxTimeoutS,
    ...(env_vars && { env: env_vars }),
  };
  const isKnown = ["python", "bash", null, undefined].includes(language);
  const ended = new AbortController();
  const signal = AbortSignal.any([call.signal, ended.signal]);
  const events = isKnown ? await run(call, session, fields, signal) : undefined;
  const keepAlive = lineOf({ type: "keepalive" });
  const lines = events ? linesOf(events) : unknownLanguage(language ?? "");
  return streamed("application/x-ndjson", keepAlive, lines, () => ended.abort());
}

type Lines = AsyncGenerator<Uint8Array, void>;

async function* linesOf(events: AsyncGenerator<JobEvent, void>): Lines {
  let stderr = "";
  try {
    for await (const { event, data } of events) {
      if (event === "stdout" || event === "stderr") {
        const timestamp = Date.parse(data.at) * 1_000_000;
        yield lineOf({ type: event, text: data.text, timestamp });
        if (event === "stderr") stderr = (stderr + data.text).slice(-tracebackMax);
      } else if (event === "display") yield lineOf(resultOf(data));
      else if (event === "end") {
        if (data.call !== undefined) {
          yield lineOf({ type: "number_of_executions", execution_count: data.call });
        }
        const exception = exceptionOf(data, stderr);
        if (exception) yield lineOf({ type: "error", ...exception });
      }
    }
  } catch (error) {
    // Without this line, clients take the end of the answer for the end of the code.
    yield errorLine("ConnectionError", reasonOfCut(error));
  }
}

async function* unknownLanguage(language: string): Lines {
  yield errorLine("UnsupportedLanguage", `${language} has no interpreter here`);
}

const errorLine = (name: string, value: string): Uint8Array =>
  lineOf({ type: "error", name, value, traceback: "" });

/** Lines of IPython that all run programs, such as `!pip install …` of smolagents; their status is no error there. */
export function programOf(code: string, language: string | null | undefined): object {
  if (language === "bash") return { command: ["bash", "-c", code || "\n"] };
  const lines = code.trim().split("\n");
  if (!lines.every((line) => line.startsWith("!"))) return { code: code || "\n" };
  return { command: ["bash", "-c", `${lines.map((line) => line.slice(1)).join("\n")}\ntrue`] };
}

const tracebackMax = 256 * 1024;

/** Names of what a result can be shown as. */
const formats: Readonly<Record<string, string>> = {
  "text/plain": "text",
  "text/html": "html",
  "text/markdown": "markdown",
  "image/svg+xml": "svg",
  "image/png": "png",
  "image/jpeg": "jpeg",
  "application/pdf": "pdf",
  "text/latex": "latex",
  "application/json": "json",
  "application/javascript": "javascript",
};

export function resultOf({ main, data }: Pick<EventData<"display">, "main" | "data">): object {
  const shown: Record<string, unknown> = {};
  const extra: Record<string, string> = {};
  for (const [type, value] of Object.entries(data)) {
    const name = formats[type];
    if (name === undefined) extra[type] = value;
    else shown[name] = name === "json" ? parsed(value) : name === "text" ? unquoted(value) : value;
  }
  const isMore = Object.keys(extra).length > 0;
  return { type: "result", is_main_result: main, ...shown, ...(isMore && { extra }) };
}

/** The JSON of a result, which may be malformed, because code made it. Numbers stay as they were written. */
function parsed(text: string): unknown {
  try {
    return parseJson(text, { depth: limits.jsonDepthMax, values: limits.requestMaxValues });
  } catch {
    return text;
  }
}

/** E2B shows a text without the quotes of its repr: template/server/api/models/result.py. */
const unquoted = (text: string): string => /^'([^]*)'$/.exec(text)?.[1] ?? text;

/** In ASCII: clients decode pieces of a line alone, or take other characters for the end of a line. */
function lineOf(value: object): Uint8Array {
  const text = JSON.stringify(value).replaceAll(
    /[\u007f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  return new TextEncoder().encode(`${text}\n`);
}

const Create = z.object({ language: z.string().nullish(), cwd: z.string().nullish() });

/** Contexts: interpreters of a sandbox. */
async function contexts(call: Call, session: string): Promise<Response> {
  const [, id = "", what = ""] = call.path.slice(1).split("/");
  const path = `/sessions/${session}/contexts`;
  switch (`${call.method} ${id && "one"} ${what}`.trim()) {
    case "GET": {
      // Those of a session that has ended can be read, too.
      const { contexts: ids } = await running(call, session);
      return Response.json(ids.map((each) => shown(each)));
    }
    case "POST": {
      const { language, cwd } = await parseBody(Create, await call.text(), 400);
      if (language && language !== "python") {
        throw new Refusal(400, `${language} has no interpreter here`);
      }
      const { context_id } = SessionContext.parse(await ask(call, path, { method: "POST" }));
      if (cwd && toOurs(cwd) !== toOurs("")) await enter(call, session, context_id, cwd);
      return Response.json(shown(context_id, cwd ?? homeFolder), { status: 201 });
    }
    case "DELETE one":
      await ask(call, `${path}/${encodeURIComponent(id)}`, { method: "DELETE" });
      return new Response(null, { status: 204 });
    case "POST one restart":
      await post(call, `/sessions/${session}/restart`, { context: id });
      return new Response(null, { status: 204 });
  }
  throw new Refusal(501, `This service has no ${call.method} ${call.path}.`);
}

const shown = (id: string, cwd: string = homeFolder) => ({ id, language: "python", cwd });

async function enter(call: Call, session: string, context: string, cwd: string): Promise<void> {
  const code = `__import__("os").chdir(${JSON.stringify(toOurs(cwd))})`;
  const ran = await post(call, `/sessions/${session}/execute`, { code, context });
  const { error } = SyncResult.parse(ran);
  if (error) throw new Refusal(400, `cwd: ${error.message}`);
}
