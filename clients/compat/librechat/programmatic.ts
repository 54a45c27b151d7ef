import { z } from "zod";
import { isPythonName } from "../../../shared/python-names.ts";
import { SubmittedJob } from "../../../shared/wire/client/submission.ts";
import { ExecutionRecord, isTerminal } from "../../../shared/wire/execution.ts";
import { JsonObjectSchema } from "../../../shared/wire/json-object.ts";
import { type ToolCall, ToolCalls } from "../../../shared/wire/tool-call.ts";
import { sleep } from "../../typescript/src/transport/pause.ts";
import {
  asThere,
  ask,
  type Call,
  fillWorkingFolder,
  isOwnError,
  parseBody,
  post,
  Refusal,
  refuseUnbegun,
  submit,
} from "../facade.ts";
import { answerOf, FileRefs, givenFiles, holdMs, inputsOf } from "./exec.ts";

const Start = z.object({
  lang: z.string().nullish(),
  code: z.string(),
  tools: z
    .array(
      z.object({
        name: z.string(),
        description: z.string().nullish(),
        parameters: JsonObjectSchema.nullish(),
      }),
    )
    .min(1),
  timeout: z.number().positive().nullish(),
  files: FileRefs.nullish(),
});

const Continues = z.object({ continuation_token: z.string().nullish() });
const Continue = z.object({
  continuation_token: z.string(),
  tool_results: z.array(
    z.object({
      call_id: z.string().regex(/^\d{1,6}$/, "is none of this service"),
      result: z.unknown(),
      is_error: z.boolean().nullish(),
      error_message: z.string().nullish(),
    }),
  ),
});

/** A run that waits for results: its job, the names that its code knows tools by with theirs, and its files. */
const Waiting = z.object({
  job: z.uuid(),
  names: z.record(z.string(), z.string()),
  files: FileRefs,
});
type Waiting = z.infer<typeof Waiting>;

/** Calls that the code makes at once come to the service one after the other. */
const togetherMs = 50;
/** Copies files to the working folder, in the first line of the code. */
const copyFiles = `import subprocess; subprocess.run(${JSON.stringify(fillWorkingFolder)}, shell=True, check=True); del subprocess; `;

/** Runs code that awaits tools of the client, to the first calls that wait for a result or to its end. */
export async function execWithTools(call: Call): Promise<Response> {
  const text = await call.text();
  const { continuation_token } = await parseBody(Continues, text, 400);
  const waiting = continuation_token
    ? await goOn(call, await parseBody(Continue, text, 400, "tool_results"))
    : await start(call, await parseBody(Start, text, 400));
  return Response.json(await untilItWaits(call, waiting));
}

async function start(call: Call, asked: z.infer<typeof Start>): Promise<Waiting> {
  if (!["py", "python", undefined, null].includes(asked.lang)) {
    throw new Refusal(400, "Tools can be called from Python only.");
  }
  const names: Record<string, string> = {};
  const tools = asked.tools.map(({ name, description, parameters }) => {
    const ours = pythonName(name);
    names[ours] = name;
    return {
      name: ours,
      ...(description && { description }),
      ...(parameters && { parameters }),
      awaitable: true,
    };
  });
  const files = asked.files ?? [];
  const given = await givenFiles(call, files);
  const job = {
    ...inputsOf(given, asked.timeout),
    code: `${given.length > 0 ? copyFiles : ""}${asked.code}`,
    tools,
  };
  const { job_id } = SubmittedJob.parse(await submit(call, "/execute/async", job, holdMs));
  return { job: job_id, names, files };
}

/** Gives a run the results of its calls. */
async function goOn(
  call: Call,
  { continuation_token, tool_results }: z.infer<typeof Continue>,
): Promise<Waiting> {
  const waiting = readToken(continuation_token);
  for (const { call_id, result, is_error, error_message } of tool_results) {
    const answer = is_error ? { error: error_message ?? "the tool failed" } : { result };
    await post(call, `/jobs/${waiting.job}/tool-calls/${call_id}`, answer);
  }
  return waiting;
}

async function untilItWaits(call: Call, waiting: Waiting): Promise<object> {
  for (;;) {
    const { status, calls } = await pending(call, waiting.job, 8);
    if (isTerminal(status)) return end(call, waiting);
    if (calls.length === 0) continue;
    await sleep(togetherMs, call.signal);
    const all = await pending(call, waiting.job, 0);
    return {
      status: "tool_call_required",
      continuation_token: tokenOf(waiting),
      tool_calls: all.calls.map((one) => shown(one, waiting.names)),
    };
  }
}

async function pending(call: Call, job: string, wait: number): Promise<ToolCalls> {
  const told = ToolCalls.parse(await ask(call, `/jobs/${job}/tool-calls?wait=${wait}`));
  if (told.status === "running") call.onRunning();
  return told;
}

function shown({ number, name, arguments: input }: ToolCall, names: Waiting["names"]): object {
  return { id: String(number), name: names[name] ?? name, input };
}

async function end(call: Call, { job, files }: Waiting): Promise<object> {
  const record = asThere(ExecutionRecord.parse(await ask(call, `/executions/${job}`)));
  refuseUnbegun(record);
  if (record.error && isOwnError(record)) throw new Refusal(500, record.error.message);
  const told = await answerOf(call, { ...record, job_id: job }, await givenFiles(call, files));
  if (record.error === null) return { status: "completed", ...told };
  return { status: "error", error: record.error.message, ...told };
}

/** As the client's normalizeToPythonIdentifier. Airlock also refuses names that Python has. */
function pythonName(name: string): string {
  const plain = name.replaceAll(/[-\s]/g, "_").replaceAll(/[^a-zA-Z0-9_]/g, "");
  const named = /^[0-9]/.test(plain) ? `_${plain}` : plain;
  return isPythonName(named) ? `${named}_tool` : named;
}

const tokenOf = (waiting: Waiting): string =>
  btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(waiting))));

function readToken(token: string): Waiting {
  try {
    const bytes = Uint8Array.from(atob(token), (letter) => letter.charCodeAt(0));
    return Waiting.parse(JSON.parse(new TextDecoder().decode(bytes)));
  } catch {
    throw new Refusal(400, "continuation_token is not from this service.");
  }
}
