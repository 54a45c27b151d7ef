import { z } from "zod";
import { parseJson } from "../../../shared/json.ts";
import { limits } from "../../../shared/wire/limits.ts";
import { defaultContext } from "../../../shared/wire/client/session.ts";
import type { EventData } from "../../../shared/wire/client/events.ts";
import { exceptionOf } from "../exception.ts";
import { type Call, parseBody } from "../facade.ts";
import type { Service } from "./control.ts";
import { type CallEvent, reasonOfCut, run } from "./events.ts";
import { streamed } from "./stream.ts";

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

async function* linesOf(events: AsyncGenerator<CallEvent, void>): Lines {
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
export function lineOf(value: object): Uint8Array {
  const text = JSON.stringify(value).replaceAll(
    /[\u007f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  return new TextEncoder().encode(`${text}\n`);
}
