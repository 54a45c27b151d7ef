import { z } from "zod";
import { base64, fromBase64, hex } from "../../shared/bytes.ts";
import { languages, python } from "../../shared/languages.ts";
import { isPythonName } from "../../shared/names.ts";
import { sleep } from "../../shared/turns.ts";
import {
  type Artifact,
  ArtifactList,
  ExecutionRecord,
  isTerminal,
  type SyncResult,
  type ToolCall,
  ToolCalls,
} from "../../shared/wire/executions.ts";
import { JsonObjectSchema } from "../../shared/wire/fields.ts";
import { FilePage, UploadedFile } from "../../shared/wire/files.ts";
import { limits } from "../../shared/wire/limits.ts";
import { SubmittedJob } from "../../shared/wire/submissions.ts";
import {
  artifactPath,
  ask,
  asThere,
  type Call,
  execute,
  type Facade,
  fillWorkingFolder,
  isOwnError,
  parseBody,
  post,
  Refusal,
  refuseUnbegun,
  shellWords,
  submit,
  unlessConflict,
} from "./facade.ts";

/**
 * The code interpreter of LibreChat: code and files, without sessions that remember. Source:
 * github.com/LibreChat-AI/code-interpreter, service/src/service/router.ts, and npm's @librechat/agents.
 */
export const librechat: Facade = {
  keyOf: (headers, compatKey) =>
    headers.get("X-Api-Key") ??
    /^Bearer (.+)$/i.exec(headers.get("Authorization") ?? "")?.[1] ??
    compatKey,
  async answer(call) {
    const path = call.path.replace(/^\/v1(?=\/)/, "");
    const [first = "", session = "", second = "", third = ""] = path.slice(1).split("/");
    switch (`${call.method} ${first}`) {
      case "POST exec":
        return session === "programmatic" ? execWithTools(call) : exec(call);
      case "POST upload":
        return upload(call, session === "batch");
      case "GET files":
        return list(call, session);
      case "DELETE files":
        return remove(call, session, second);
      case "GET download":
        return (await fileOf(call, session, second)).open();
      case "GET sessions":
        return Response.json(describe(await fileOf(call, session, third), session));
      case "DELETE sessions":
        return remove(call, session, third);
    }
    throw new Refusal(404, `This service has no ${call.method} ${path}.`);
  },
  refuse(status, message) {
    const shown = status === 503 ? 429 : status === 422 ? 400 : status;
    return Response.json({ error: message }, { status: shown });
  },
};

async function list(call: Call, session: string): Promise<Response> {
  const files = await filesOf(call, session);
  return Response.json(files.map((file) => describe(file, session)));
}

/** A file that a client has been told of. Earlier clients call the session of its storage `session_id`. */
const FileRef = z.object({
  id: z.string(),
  name: z.string(),
  storage_session_id: z.string().nullish(),
  session_id: z.string().nullish(),
});
type FileRef = z.infer<typeof FileRef>;
/** More would be refused one by one, each with requests of its own. */
const FileRefs = z.array(FileRef).max(limits.inputFilesMax);

const Exec = z.object({
  lang: z.string(),
  code: z.string(),
  args: z.array(z.string()).nullish(),
  files: FileRefs.nullish(),
  timeout: z.number().positive().nullish(),
});

/** LibreChat's names of languages, where Airlock has other names. */
const names: Readonly<Record<string, string>> = {
  py: "python",
  js: "javascript",
  node: "javascript",
  nodejs: "javascript",
  ts: "typescript",
  rs: "rust",
  sh: "bash",
};

const holdMs = 15_000;

/** Runs code in a sandbox of its own. */
async function exec(call: Call): Promise<Response> {
  const asked = await parseBody(Exec, await call.text(), 400);
  const { code, args, timeout } = asked;
  const given = await givenFiles(call, asked.files ?? []);
  const job = {
    code,
    ...programOf(asked.lang, given.length > 0),
    ...(args?.length && { args }),
    ...inputsOf(given, timeout),
  };
  const result = await execute(call, job, holdMs);
  if (isOwnError(result)) throw new Refusal(500, result.error!.message);
  return Response.json(await answerOf(call, result, given));
}

/** @param timeoutMs The client's limit; without one, that of the job type counts. */
function inputsOf(given: readonly Given[], timeoutMs: number | null | undefined): object {
  return {
    files: given.map(({ name, source }) => ({ name: `work/${name}`, ...source })),
    ...(timeoutMs && { timeout: Math.ceil(timeoutMs / 1000) }),
  };
}

type Ended = Omit<SyncResult, "success" | "execution_time" | "job_type">;

/** What a client gets of code that has ended. */
async function answerOf(
  call: Call,
  { job_id, stdout, stderr, output, exit_code, error, compile }: Ended,
  given: readonly Given[],
): Promise<object> {
  const session_id = shortId("execution", job_id);
  const files = await artifactsOf(call, job_id, output !== null);
  const why = exit_code === null && !compile ? `${error?.message}\n` : "";
  return {
    session_id,
    stdout,
    stderr: `${compile?.stderr ?? ""}${stderr}${why}`,
    files: files.map((file) => refOf(file, session_id, given)),
  };
}

/** A file that the code did not change stays the one that the client gave. */
function refOf({ id, name, sha256 }: Stored, session: string, given: readonly Given[]): object {
  const same = given.find((file) => file.name === name && file.sha256 === sha256);
  if (same === undefined) return { id, name, storage_session_id: session };
  return { id: same.id, name, storage_session_id: same.session, inherited: true };
}

/** A file that a request gives its code. */
interface Given {
  readonly id: string;
  readonly session: string;
  readonly name: string;
  readonly sha256?: string | undefined;
  readonly source: object;
}

/** Of files with the same name, the last one counts. */
async function givenFiles(call: Call, refs: readonly FileRef[]): Promise<Given[]> {
  const files = new Map<string, Given>();
  const known = new Map<string, Promise<Stored[]>>();
  for (const { id, name, storage_session_id, session_id } of refs) {
    const session = storage_session_id ?? session_id ?? "";
    if (!known.has(session)) known.set(session, filesOf(call, session));
    const stored = (await known.get(session)!).find((file) => file.id === id);
    if (stored === undefined) throw new Refusal(404, `File not found: ${name}`);
    files.set(name, { id, session, name, sha256: stored.sha256, source: stored.source });
  }
  return [...files.values()];
}

/** The code is in another folder than its modules, and what Python compiles is no file of the code. */
const ofPython = "PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1";

/** Files are in the working folder, which a shell fills first; a compiler then runs in that shell, too. */
function programOf(lang: string, hasFiles: boolean): object {
  const name = names[lang] ?? lang;
  const known = name === "python" ? python : languages[name];
  if (known === undefined) throw new Refusal(400, `Unsupported language: ${lang}`);
  if (!hasFiles) return name === "python" ? {} : { language: name };
  const { compile, run } = known;
  const compiling = compile ? ` && ${shellWords(compile)}` : "";
  const script = `${fillWorkingFolder}${compiling} && ${ofPython} exec ${shellWords(run)} "$@"`;
  return { command: ["sh", "-c", script, "sh"] };
}

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
async function execWithTools(call: Call): Promise<Response> {
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

/**
 * Gives a run the results of its calls. A call that no longer waits has its result, from a request whose answer was lost,
 * or has ended with the run.
 */
async function goOn(
  call: Call,
  { continuation_token, tool_results }: z.infer<typeof Continue>,
): Promise<Waiting> {
  const waiting = readToken(continuation_token);
  for (const { call_id, result, is_error, error_message } of tool_results) {
    const answer = is_error ? { error: error_message ?? "the tool failed" } : { result };
    await unlessConflict(post(call, `/jobs/${waiting.job}/tool-calls/${call_id}`, answer));
  }
  return waiting;
}

async function untilItWaits(call: Call, waiting: Waiting): Promise<object> {
  for (;;) {
    const { status, calls } = await pending(call, waiting.job, 8);
    if (isTerminal(status)) return end(call, waiting);
    if (calls.length === 0) continue;
    await sleep(togetherMs, call.signal);
    call.signal.throwIfAborted();
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
  base64(new TextEncoder().encode(JSON.stringify(waiting)));

function readToken(token: string): Waiting {
  try {
    return Waiting.parse(JSON.parse(new TextDecoder().decode(fromBase64(token))));
  } catch {
    throw new Refusal(400, "continuation_token is not from this service.");
  }
}

/** A file that a client can download, and give to code. */
interface Stored {
  readonly id: string;
  readonly name: string;
  readonly size: number;
  readonly sha256?: string | undefined;
  /** Where a job finds it. */
  readonly source: object;
  /** Its bytes. */
  readonly open: () => Promise<Response>;
}

/** A file of the code that is not listed among its artifacts, because the record has it as `output`. */
const resultName = "result.json";

const uploadMs = 600_000;
const pageSize = 100;

/** The files of a session: those that an execution left behind, or those of an upload. */
export async function filesOf(call: Call, session: string): Promise<Stored[]> {
  const { kind, uuid } = readId(session);
  if (kind === "execution") return artifactsOf(call, uuid);
  return kind === "upload" ? uploadsOf(call, uuid, session) : [];
}

/** @throws Refusal 404 */
async function fileOf(call: Call, session: string, id: string): Promise<Stored> {
  const found = (await filesOf(call, session)).find((file) => file.id === id);
  if (found === undefined) throw new Refusal(404, "File not found");
  return found;
}

/** @param mayHaveResult Whether the record may have an `output`. */
async function artifactsOf(call: Call, jobId: string, mayHaveResult = true): Promise<Stored[]> {
  const { artifacts } = ArtifactList.parse(await ask(call, `/jobs/${jobId}/artifacts`));
  const files = artifacts.map((artifact) => artifactOf(call, jobId, artifact));
  if (!mayHaveResult || artifacts.some(({ name }) => name === resultName))
    return Promise.all(files);
  const path = artifactPath(jobId, resultName);
  const { ok, headers } = await call.api(path, { method: "HEAD", signal: call.signal });
  if (ok) {
    const size_bytes = Number(headers.get("Content-Length"));
    const sha256 = headers.get("ETag")?.replaceAll('"', "");
    files.push(artifactOf(call, jobId, { name: resultName, size_bytes, sha256 }));
  }
  return Promise.all(files);
}

async function artifactOf(
  call: Call,
  jobId: string,
  {
    name,
    size_bytes,
    sha256,
  }: Pick<Artifact, "name" | "size_bytes"> & { sha256?: string | undefined },
): Promise<Stored> {
  return {
    id: await nameId(name),
    name,
    size: size_bytes,
    sha256,
    source: { artifact: { job_id: jobId, name } },
    open: () => call.api(artifactPath(jobId, name), { signal: call.signal }),
  };
}

/** The names of an upload's files begin with its id. They were stored soon after it began. */
async function uploadsOf(call: Call, began: string, session: string): Promise<Stored[]> {
  const found: Stored[] = [];
  const ms = timeOf(began).getTime();
  const first = uuidAt(ms);
  let before = uuidAt(ms + uploadMs);
  for (;;) {
    const page = await ask(call, `/files?limit=${pageSize}&before=${before}`);
    const { items, has_more } = FilePage.parse(page);
    for (const { file_id, name, size_bytes, sha256 } of items) {
      if (file_id < first) return found;
      if (!name.startsWith(`${session}/`)) continue;
      found.push({
        id: shortId("file", file_id),
        name: name.slice(session.length + 1),
        size: size_bytes,
        sha256,
        source: { file_id },
        open: () => call.api(`/files/${file_id}`, { signal: call.signal }),
      });
      before = file_id;
    }
    before = items.at(-1)?.file_id ?? before;
    if (!has_more) return found;
  }
}

/** Stores the files of a form, each as one of Airlock's. */
async function upload(call: Call, isBatch: boolean): Promise<Response> {
  const files = await call.form();
  if (files.length === 0) throw new Refusal(400, "No files provided");
  const session = shortId("upload", uuidAt(Date.now(), crypto.getRandomValues(new Uint8Array(10))));
  const stored: {
    status: "success" | "error";
    filename: string;
    fileId?: string;
    error?: string;
  }[] = [];
  for (const file of files) {
    try {
      const fileId = await store(call, `${session}/${file.name}`, file.bytes);
      stored.push({ status: "success", filename: file.name, fileId });
    } catch (error) {
      if (!(error instanceof Refusal) || !isBatch) throw error;
      stored.push({ status: "error", filename: file.name, error: error.message });
    }
  }
  const failed = stored.filter(({ status }) => status === "error").length;
  const succeeded = stored.length - failed;
  const message = failed === 0 ? "success" : succeeded === 0 ? "error" : "partial_success";
  const answer = { message, storage_session_id: session, session_id: session };
  if (!isBatch) {
    return Response.json({
      ...answer,
      files: stored.map(({ filename, fileId }) => ({ filename, fileId })),
    });
  }
  const status = succeeded === 0 ? 400 : 200;
  return Response.json({ ...answer, files: stored, succeeded, failed }, { status });
}

async function store(call: Call, name: string, bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const answer = await ask(call, `/files?name=${encodeURIComponent(name)}`, {
    method: "POST",
    headers: { "Content-Length": String(bytes.length) },
    body: bytes,
  });
  return shortId("file", UploadedFile.parse(answer).file_id);
}

/** @throws Refusal 409 for the file of an execution. */
async function remove(call: Call, session: string, id: string): Promise<Response> {
  const { kind } = readId(session);
  if (kind === "execution") {
    throw new Refusal(409, "Files of an execution are removed with its record.");
  }
  await ask(call, `/files/${readId(id).uuid}`, { method: "DELETE" });
  return Response.json({ message: "success" });
}

/** How the service describes a file. */
function describe({ id, name, size, sha256 }: Stored, session: string): object {
  const ending = /\.[^./]*$/.exec(name)?.[0] ?? "";
  return {
    name: `${session}/${id}${ending}`,
    id,
    storage_session_id: session,
    size,
    etag: sha256,
    lastModified: timeOf(readId(session).uuid).toISOString(),
    metadata: { "original-filename": name },
  };
}

/** What an id names: an execution, an upload of one or more files, or one of these files. */
const kinds = ["execution", "upload", "file"] as const;
type Kind = (typeof kinds)[number];

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const length = 21;

/**
 * Clients of LibreChat's service take ids of 21 letters, which are 126 bits. A UUIDv7 has 122 bits of its own; the
 * others say what it names.
 */
export function shortId(kind: Kind, uuid: string): string {
  const digits = uuid.replaceAll("-", "");
  const own = (BigInt(`0x${digits.slice(0, 12)}${digits.slice(13, 16)}`) << 62n) | low(digits);
  let bits = (BigInt(kinds.indexOf(kind)) << 122n) | own;
  let id = "";
  for (let n = 0; n < length; n++) {
    id = letters[Number(bits & 63n)] + id;
    bits >>= 6n;
  }
  return id;
}

const low = (digits: string): bigint => BigInt(`0x${digits.slice(16)}`) & ((1n << 62n) - 1n);

/** What an id names. @throws Refusal 404 if it is none of ours. */
export function readId(id: string): { kind: Kind; uuid: string } {
  let bits = 0n;
  for (const letter of id) bits = (bits << 6n) | BigInt(Math.max(0, letters.indexOf(letter)));
  const kind = kinds[Number(bits >> 122n)];
  if (!/^[A-Za-z0-9_-]{21}$/.test(id) || kind === undefined)
    throw new Refusal(404, `There is no ${id}.`);
  const high = ((bits >> 62n) & ((1n << 60n) - 1n)).toString(16).padStart(15, "0");
  const rest = ((bits & ((1n << 62n) - 1n)) | (2n << 62n)).toString(16);
  const digits = `${high.slice(0, 12)}7${high.slice(12)}${rest}`;
  return { kind, uuid: digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-") };
}

/** The time in a UUIDv7. */
export function timeOf(uuid: string): Date {
  return new Date(Number.parseInt(uuid.replaceAll("-", "").slice(0, 12), 16));
}

/** A UUIDv7 of a time. With zeros as `random` it is the first one of that time. */
export function uuidAt(ms: number, random = new Uint8Array(10)): string {
  const tail = hex(random);
  const time = ms.toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7${tail.slice(0, 3)}-8${tail.slice(3, 6)}-${tail.slice(6, 18)}`;
}

/** The id of an execution's file: its name can be longer than an id. */
export async function nameId(name: string): Promise<string> {
  const hash = new Uint8Array(
    await crypto.subtle.digest("SHA-256", new TextEncoder().encode(name)),
  );
  return Array.from(hash.subarray(0, length), (byte) => letters[byte & 63]).join("");
}
