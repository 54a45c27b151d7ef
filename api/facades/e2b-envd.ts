import { z } from "zod";
import { base64 } from "../../shared/bytes.ts";
import {
  ArtifactList,
  type EventData,
  type JobEvent,
  SyncResult,
} from "../../shared/wire/executions.ts";
import { PlainText } from "../../shared/wire/submissions.ts";
import { within } from "../http/answer.ts";
import type { Service } from "./e2b-control.ts";
import {
  artifactPath,
  ask,
  asThere,
  type Call,
  parseBody,
  partsOf,
  post,
  Refusal,
  refused,
  sessionFile,
  signalOf,
  unlessConflict,
} from "./facade.ts";

const Start = z.object({
  process: z.object({
    cmd: z.string(),
    args: z.array(z.string()).default([]),
    envs: z.record(z.string(), z.string()).default({}),
    cwd: z.string().optional(),
  }),
  pty: z.undefined("is not offered").optional(),
  stdin: z.literal(false, "is not offered").optional(),
});

/** Clients kill by it, which this service does not offer. */
const pid = 1;

/** Runs a command to its end; the answer is a stream of what it writes. */
export async function start(call: Call, service: Service, session: string): Promise<Response> {
  const { process } = await parseBody(Start, readFrame(await call.bytes()), 400);
  const timeoutMs = Number(call.headers.get("Connect-Timeout-Ms")) || Infinity;
  const fields = {
    command: commandOf(process),
    env: process.envs,
    timeout: Math.min(service.maxTimeoutS, Math.ceil(timeoutMs / 1000)),
  };
  const ended = new AbortController();
  const signal = AbortSignal.any([call.signal, ended.signal]);
  const events = await run(call, session, fields, signal);
  const keepAlive = frame({ event: { keepalive: {} } });
  return streamed(streamType, keepAlive, framesOf(events), () => ended.abort());
}

async function* framesOf(events: AsyncGenerator<JobEvent, void>): AsyncGenerator<Uint8Array, void> {
  yield frame({ event: { start: { pid } } });
  try {
    for await (const { event, data } of events) {
      if (event === "stdout" || event === "stderr") {
        yield frame({ event: { data: { [event]: base64(new TextEncoder().encode(data.text)) } } });
      } else if (event === "end") yield* endOf(data);
    }
  } catch (error) {
    yield lastFrame({ code: "unavailable", message: reasonOfCut(error) });
  }
}

function commandOf({ cmd, args, cwd }: z.infer<typeof Start>["process"]): string[] {
  if (cwd === undefined || toOurs(cwd) === toOurs(homeFolder)) return [cmd, ...args];
  return ["sh", "-c", 'cd "$0" && exec "$@"', toOurs(cwd), cmd, ...args];
}

export function endOf(record: EventData<"end">): Uint8Array[] {
  const { exit_code, error } = record;
  if (error?.type === "execution_timeout") {
    return [lastFrame({ code: "deadline_exceeded", message: error.message })];
  }
  // The command has not exited by itself: its sandbox was ended, for example.
  if (error?.type === "cancelled") {
    return [lastFrame({ code: "canceled", message: error.message })];
  }
  if (exit_code === null) {
    return [lastFrame({ code: "aborted", message: error?.message ?? "it did not end" })];
  }
  const signal = signalOf({ exit_code, error });
  const end =
    signal === undefined
      ? { exitCode: exit_code, exited: true, status: `exit status ${exit_code}` }
      : { exitCode: -1, exited: false, status: `signal: ${signal}` };
  const failure = exit_code === 0 ? {} : { error: end.status };
  return [frame({ event: { end: { ...end, ...failure } } }), lastFrame()];
}

const Path = z.object({ path: PlainText, depth: z.int().min(1).default(1) });
const Move = z.object({ source: PlainText, destination: PlainText });

const Told = z.union([
  /** One of Connect's codes, the path and the reason. */
  z.object({ error: z.tuple([z.string(), z.string(), z.string()]) }),
  z.object({ entry: z.unknown() }),
  z.object({ entries: z.array(z.unknown()) }),
  z.object({}).strict(),
]);

/** Calls of filesystem.Filesystem, each by a program inside the sandbox. */
export async function filesystem(call: Call, session: string, method: string): Promise<Response> {
  const { told } = await tell(call, session, await askedOf(call, method));
  if (!("error" in told)) return Response.json(told);
  const [code, path, reason] = told.error;
  return refuseCall({ code, message: `${toTheirs(path)}: ${reason}` });
}

/**
 * Gives a file the bytes of another one below the working folder, and removes the latter.
 *
 * @throws Refusal
 */
async function writeFile(call: Call, session: string, source: string, path: string): Promise<void> {
  const { told } = await tell(call, session, ["Write", toOurs(source), toOurs(path)]);
  if ("error" in told) throw refusalOf(told.error, path);
}

/**
 * Copies a file of the sandbox to where calls may fetch it.
 *
 * @returns The call that has it as its artifact.
 * @throws Refusal
 */
async function copyOut(call: Call, session: string, path: string): Promise<string> {
  const copy = `/tmp/.download-${crypto.randomUUID()}`;
  // Also for a client that has hung up.
  const remove = () =>
    post({ ...call, signal: new AbortController().signal }, `/sessions/${session}/execute`, {
      command: ["rm", "-f", copy],
    });
  let read: Awaited<ReturnType<typeof tell>>;
  try {
    read = await tell(call, session, ["Read", toOurs(path), copy], [copy]);
  } catch (error) {
    await remove().catch(() => {});
    throw error;
  }
  // The program has removed the copy itself.
  if ("error" in read.told) throw refusalOf(read.told.error, path);
  await remove();
  return read.jobId;
}

type Fault = [code: string, path: string, reason: string];

const refusalOf = ([code, , reason]: Fault, path: string): Refusal =>
  new Refusal({ not_found: 404, permission_denied: 403 }[code] ?? 400, `${path}: ${reason}`);

/** Arguments of the program. @throws Refusal */
async function askedOf(call: Call, method: string): Promise<unknown[]> {
  if (method === "Move") {
    const { source, destination } = await parseBody(Move, await call.text(), 400);
    return [method, toOurs(source), toOurs(destination)];
  }
  if (!["Stat", "ListDir", "MakeDir", "Remove"].includes(method)) {
    throw new Refusal(501, `This service has no ${method}.`);
  }
  const { path, depth } = await parseBody(Path, await call.text(), 400);
  return [method, toOurs(path), depth];
}

/** Runs the program. @param fetch Files that become artifacts of the call. */
async function tell(call: Call, session: string, args: unknown[], fetch: string[] = []) {
  const command = ["python3", "-I", "-c", program, JSON.stringify(args), homeFolder];
  const asked = { command, ...(fetch.length > 0 && { fetch }) };
  const result = SyncResult.parse(await post(call, `/sessions/${session}/execute`, asked));
  const { error, stdout, job_id } = result;
  // The program tells its own errors. This one is about the file to fetch, the only one that a command collects.
  if (error?.type === "file_error") throw new Refusal(507, error.message);
  if (error) throw new Refusal(error.type === "cancelled" ? 409 : 500, error.message);
  try {
    return { told: Told.parse(JSON.parse(stdout)), jobId: job_id };
  } catch {
    throw new Refusal(400, "The answer is larger than max_stdout_bytes.");
  }
}

const program = `import datetime, grp, json, os, pwd, shutil, stat, sys
(method, path, option), home = json.loads(sys.argv[1]), sys.argv[2]
kinds = {stat.S_IFREG: "FILE", stat.S_IFDIR: "DIRECTORY"}
def name_of(find, number):
    try:
        return find(number)[0]
    except KeyError:
        return "user" if number == 1000 else str(number)
def theirs(path):
    return home + path[7:] if (path + "/").startswith("/output/") else path
def info(path):
    found = target = os.lstat(path)
    is_link = stat.S_ISLNK(found.st_mode)
    if is_link:
        try:
            target = os.stat(path)
        except OSError:
            target = None
    shown = theirs(path)
    modified = datetime.datetime.fromtimestamp(found.st_mtime, datetime.timezone.utc)
    entry = {
        "name": os.path.basename(shown) or "/",
        "type": "FILE_TYPE_" + kinds.get(target and stat.S_IFMT(target.st_mode), "UNSPECIFIED"),
        "path": shown,
        "size": str(found.st_size),
        "mode": target and stat.S_IMODE(target.st_mode) or 0,
        "permissions": stat.filemode(found.st_mode),
        "owner": name_of(pwd.getpwuid, found.st_uid),
        "group": name_of(grp.getgrgid, found.st_gid),
        "modifiedTime": modified.isoformat().replace("+00:00", "Z"),
    }
    if is_link:
        entry["symlinkTarget"] = theirs(os.path.realpath(path)) if target else shown
    return entry
def below(path, depth):
    names = set(os.listdir(path))
    if path == "/":
        names.discard("output")
    if path == "/home":
        names.add("user")
    for name in sorted(names):
        one = "/output" if (path, name) == ("/home", "user") else os.path.join(path, name)
        try:
            yield info(one)
            if depth > 1 and os.path.isdir(one) and not os.path.islink(one):
                yield from below(one, depth - 1)
        except OSError:
            # The entry is gone, or may not be read.
            pass
def run():
    if method == "Stat":
        return {"entry": info(path)}
    if method == "ListDir":
        return {"entries": list(below(path, option))}
    if method == "MakeDir":
        os.makedirs(path)
        return {"entry": info(path)}
    if method == "Move":
        os.makedirs(os.path.dirname(option), exist_ok=True)
        shutil.move(path, option)
        return {"entry": info(option)}
    if method in ("Read", "Write"):
        if method == "Write":
            os.makedirs(os.path.dirname(option), exist_ok=True)
        try:
            with open(path, "rb") as source, open(option, "wb") as to:
                shutil.copyfileobj(source, to)
        except OSError:
            # /tmp is memory: a part of a copy must not stay.
            if method == "Read" and os.path.lexists(option):
                os.unlink(option)
            raise
        if method == "Write":
            os.unlink(path)
        return {}
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
    return {}
codes = {RecursionError: "invalid_argument", FileNotFoundError: "not_found", FileExistsError: "already_exists", NotADirectoryError: "invalid_argument", IsADirectoryError: "invalid_argument"}
try:
    told = run()
except (OSError, RecursionError) as error:
    told = {"error": [codes.get(type(error), "permission_denied"), path, getattr(error, "strerror", None) or str(error)]}
print(json.dumps(told))
`;

/** GET and POST /files: the bytes of files. */
export async function files(call: Call, session: string): Promise<Response> {
  const path = call.query.get("path") ?? "";
  if (call.method === "GET") return read(call, session, path);
  if (call.method === "POST") return write(call, session, path);
  throw new Refusal(501, `This service has no ${call.method} ${call.path}.`);
}

/**
 * Reads a file. A file outside the home folder, or behind a symbolic link, comes as an artifact of a call.
 */
async function read(call: Call, session: string, path: string): Promise<Response> {
  const below = belowHome(path);
  if (below !== undefined) {
    const answer = await call.api(sessionFile(session, below), { signal: call.signal });
    if (answer.ok) return answer;
    const refusal = await refused(answer);
    if (refusal.status !== 404) throw refusal;
  }
  const jobId = await copyOut(call, session, path);
  const { artifacts } = ArtifactList.parse(await ask(call, `/jobs/${jobId}/artifacts`));
  if (artifacts[0] === undefined) throw new Refusal(507, `${path}: is too large to be read`);
  return opened(call, artifactPath(jobId, artifacts[0].name));
}

async function opened(call: Call, place: string): Promise<Response> {
  const answer = await call.api(place, { signal: call.signal });
  if (answer.ok) return answer;
  throw await refused(answer);
}

async function write(call: Call, session: string, path: string): Promise<Response> {
  const written: object[] = [];
  for (const file of await call.form()) {
    const name = path || file.name;
    await store(call, session, name, file.bytes);
    const place = toTheirs(toOurs(name));
    written.push({ name: place.split("/").at(-1), type: "file", path: place });
  }
  if (written.length === 0) throw new Refusal(400, "The form has no file.");
  return Response.json(written);
}

/**
 * Writes a file. The service itself writes only plain files of the home folder: for a file elsewhere, or behind a symbolic
 * link, it writes a temporary file, which a program in the sandbox copies.
 */
async function store(
  call: Call,
  session: string,
  path: string,
  bytes: Uint8Array<ArrayBuffer>,
): Promise<void> {
  const headers = { "Content-Type": "application/octet-stream" };
  const put = (place: string) =>
    ask(call, sessionFile(session, place), { method: "PUT", headers, body: bytes });
  const below = belowHome(path);
  const isWritten = below !== undefined && (await unlessConflict(put(below)));
  if (isWritten) return;
  const temporary = `.upload-${crypto.randomUUID()}`;
  try {
    await put(temporary);
    await writeFile(call, session, temporary, path);
  } catch (error) {
    // Also for a client that has hung up.
    const removed = await call.api(sessionFile(session, temporary), { method: "DELETE" });
    await removed.body?.cancel();
    if (!(error instanceof Refusal)) throw error;
    throw new Refusal(error.status, error.message.replaceAll(temporary, path));
  }
}

/** Where E2B's code runs. Here it is /output. */
export const homeFolder = "/home/user";
const ourFolder = "/output";

/** An absolute path of the sandbox, for one of E2B's. */
export function toOurs(path: string): string {
  return `/${partsOf(homeFolder, path).join("/")}`.replace(/^\/home\/user(?=\/|$)/, ourFolder);
}

export function toTheirs(path: string): string {
  return path.replace(/^\/output(?=\/|$)/, homeFolder);
}

/** Below the folder of files that the service reads and writes; undefined if it is elsewhere. */
export function belowHome(path: string): string | undefined {
  const ours = toOurs(path);
  return ours.startsWith(`${ourFolder}/`) ? ours.slice(ourFolder.length + 1) : undefined;
}

/** Runs a call of a session. @throws Refusal with the service's status and words. */
export async function run(
  { api }: Pick<Call, "api">,
  session: string,
  fields: object,
  signal: AbortSignal,
): Promise<AsyncGenerator<JobEvent, void>> {
  const headers = { "Content-Type": "application/json" };
  const init = { method: "POST", headers, body: JSON.stringify(fields), signal };
  let events: ReadableStream<JobEvent | "idle"> | undefined;
  const answer = await api(`/sessions/${session}/execute`, init, (taken) => (events = taken));
  if (!events) throw await refused(answer);
  return readEvents(events);
}

/** Why the events of a call stopped before its end. */
export function reasonOfCut(error: unknown): string {
  return error instanceof Refusal ? error.message : "The connection to the service was lost.";
}

/** @throws Refusal if the events end before the call: its key was revoked, or the service stops. */
export async function* readEvents(
  events: ReadableStream<JobEvent | "idle">,
): AsyncGenerator<JobEvent, void> {
  for await (const event of events) {
    if (event === "idle") continue;
    if (event.event !== "end") {
      yield event;
      continue;
    }
    yield { ...event, data: asThere(event.data) };
    return;
  }
  throw new Refusal(503, "The service ended the stream before the call had ended.");
}

const keepAliveMs = 10_000;

/**
 * An answer whose headers go at once. The next part is made when the client has taken the one before it, so that a slow
 * client holds no more than that one.
 *
 * @param keepAlive A part that clients ignore, for times without any.
 * @param hangUp Called when the client goes.
 */
export function streamed(
  contentType: string,
  keepAlive: Uint8Array,
  parts: AsyncGenerator<Uint8Array, void>,
  hangUp: () => void,
): Response {
  let next: Promise<IteratorResult<Uint8Array, void>> | undefined;
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        next ??= parts.next();
        const step = await within(keepAliveMs, next);
        if (step === undefined) return controller.enqueue(keepAlive);
        next = undefined;
        if (step.done) controller.close();
        else controller.enqueue(step.value);
      },
      cancel: hangUp,
    },
    { highWaterMark: 0 },
  );
  const headers = {
    "Content-Type": contentType,
    "Cache-Control": "private, no-store, no-transform",
    "X-Accel-Buffering": "no",
  };
  return new Response(body, { headers });
}

/** The Connect protocol with JSON. Source: connectrpc.com/docs/protocol. */

const codes: Readonly<Record<number, string>> = {
  400: "invalid_argument",
  401: "unauthenticated",
  403: "permission_denied",
  404: "not_found",
  409: "failed_precondition",
  413: "resource_exhausted",
  422: "invalid_argument",
  429: "resource_exhausted",
  501: "unimplemented",
  502: "unavailable",
  503: "unavailable",
};

export const streamType = "application/connect+json";

/** An error of a call that has one of Connect's codes. */
interface ConnectError {
  readonly code: string;
  readonly message: string;
}

const statuses: Readonly<Record<string, number>> = {
  ...Object.fromEntries(Object.entries(codes).map(([status, code]) => [code, Number(status)])),
  invalid_argument: 400,
  already_exists: 409,
};

export const errorOf = ({ status, message }: Refusal): ConnectError => {
  return { code: codes[status] ?? "internal", message };
};

/** The answer of a call that has one message. */
export function refuseCall(error: ConnectError): Response {
  return Response.json(error, { status: statuses[error.code] ?? 500 });
}

/** Before each message of a stream: flags, and its length. */
const headBytes = 5;
const last = 2;

export function frame(message: object, flags = 0): Uint8Array {
  const text = new TextEncoder().encode(JSON.stringify(message));
  const bytes = new Uint8Array(headBytes + text.length);
  bytes[0] = flags;
  new DataView(bytes.buffer).setUint32(1, text.length);
  bytes.set(text, headBytes);
  return bytes;
}

/** The end of a stream: it has an error, or none. */
const lastFrame = (error?: ConnectError): Uint8Array => frame(error ? { error } : {}, last);

/** The answer of a call that has a stream of messages. Its status is 200. */
export function failedStream(refusal: Refusal): Response {
  const body = lastFrame(errorOf(refusal)) as Uint8Array<ArrayBuffer>;
  return new Response(body, { headers: { "Content-Type": streamType } });
}

/** The text of the one message that a client sends. @throws Refusal 400 */
export function readFrame(body: Uint8Array): string {
  const message = body.subarray(headBytes);
  const isWhole =
    body.length >= headBytes &&
    body[0] === 0 &&
    new DataView(body.buffer, body.byteOffset).getUint32(1) === message.length;
  if (isWhole) return new TextDecoder().decode(message);
  throw new Refusal(400, "The body is not one message of Connect, uncompressed.");
}
