import { bytesOf, type FileBody, toBlob, uploadMs } from "./files.ts";
import type {
  CallRequest,
  ExecutionRecord,
  Interrupted,
  Session,
  SessionContext,
  SessionFile,
  SessionPatch,
  SessionRequest,
  SessionStatus,
  SubmittedJob,
} from "./generated.ts";
import { type RunToEnd, type WaitOptions, withCode, withTools } from "./jobs.ts";
import { type Ask, type CallOptions, pages, pathOf, type Transport } from "./transport.ts";

/** Sessions: interpreters that remember from call to call. */
export interface Sessions {
  /**
   * A new session. It lives until it is closed, idle for `idle_timeout`, or older than `lifetime`. If none could be
   * started within `wait` seconds, it is still queued: its calls wait for it.
   */
  readonly create: (request?: SessionRequest, options?: CallOptions) => Promise<OpenSession>;
  /** A session that is there already. Sends no request. */
  readonly attach: (sessionId: string) => OpenSession;
  /** Its state: whether it is ready, and what it ended of. */
  readonly get: (sessionId: string, options?: CallOptions) => Promise<Session>;
  /** The newest first, also those that have ended. They are fetched page by page, as they are read. */
  readonly list: (
    filters?: { status?: SessionStatus; limit?: number },
    options?: CallOptions,
  ) => AsyncGenerator<Session, void>;
}

/** How long the service waits for a new session if the request does not say it. */
const WAIT_S = 30;

export function sessions(ask: Ask, service: Transport, runToEnd: RunToEnd): Sessions {
  const attach: Sessions["attach"] = (id) => openSession(id, ask, service, runToEnd);
  return {
    create: async (body = {}, options) => {
      const timeoutMs = service.timeoutMs && service.timeoutMs + (body.wait ?? WAIT_S) * 1000;
      const what = { method: "POST", body } as const;
      const made = await ask<Session>("/sessions", what, { timeoutMs, ...options });
      return attach(made.session_id);
    },
    attach,
    get: async (id, options) => ask(pathOf("sessions", id), {}, options),
    list: (filters = {}, options) =>
      pages<Session>(ask, "/sessions", { ...filters }, ({ session_id: id }) => id, options),
  };
}

/** Python source, or a request with all its fields. */
export type Call = string | CallRequest;

/** A session. Its calls run one at a time, in order; `await using` closes it at the end of its block. */
export interface OpenSession extends AsyncDisposable {
  readonly id: string;
  /**
   * Runs code with the variables of earlier calls, to its end. The record's `results` have what it displayed and the
   * value of its last expression. Code that fails throws nothing, and the session goes on. If the signal aborts or a
   * callback throws, the code is interrupted; its variables stay. The names of `tools` go with the call.
   */
  readonly run: (call: Call, options?: WaitOptions) => Promise<ExecutionRecord>;
  /** Queues a call, and does not wait for it: `wait` and `stream` of the client take its `job_id`. */
  readonly submit: (call: Call, options?: CallOptions) => Promise<SubmittedJob>;
  /** Starts an interpreter anew, once the calls before have ended: its variables go, files stay. */
  readonly restart: (context?: string, options?: CallOptions) => Promise<ExecutionRecord>;
  /** Ends the running call, as Ctrl-C does; variables stay. The call's `job_id` is null if none ran. */
  readonly interrupt: (options?: CallOptions) => Promise<Interrupted>;
  readonly info: (options?: CallOptions) => Promise<Session>;
  /** Changes what is given; `lifetime` counts from now. */
  readonly update: (patch: SessionPatch, options?: CallOptions) => Promise<Session>;
  /** Ends it, with its variables and files. A call that runs is cancelled. */
  readonly close: (options?: CallOptions) => Promise<void>;
  readonly files: SessionFiles;
  readonly contexts: SessionContexts;
}

function openSession(id: string, ask: Ask, service: Transport, runToEnd: RunToEnd): OpenSession {
  const path = pathOf("sessions", id);
  const submit: OpenSession["submit"] = (call, options) =>
    ask(`${path}/execute/async`, { method: "POST", body: withCode(call) }, options);
  const run: OpenSession["run"] = (call, options) =>
    runToEnd((given) => submit(withTools(call, options), given), options);
  const close: OpenSession["close"] = (options) => ask(path, { method: "DELETE" }, options);
  return {
    id,
    submit,
    run,
    restart: (context, options) =>
      run({ restart: true, ...(context !== undefined && { context }) }, options),
    interrupt: (options) => ask(`${path}/interrupt`, { method: "POST" }, options),
    info: (options) => ask(path, {}, options),
    update: (body, options) => ask(path, { method: "PATCH", body }, options),
    close,
    files: sessionFiles(`${path}/files`, ask, service),
    contexts: sessionContexts(`${path}/contexts`, ask),
    [Symbol.asyncDispose]: () => close(),
  };
}

/** Files of a session, in the order of its calls. Paths are relative to its working directory, /output. */
type SessionFiles = Readonly<ReturnType<typeof sessionFiles>>;

function sessionFiles(folder: string, ask: Ask, { send, open }: Transport) {
  const fileOf = (path: string): string => folder + pathOf(...path.split("/"));
  return {
    /** Writes a file, and the folders of its path; replaces an existing one. */
    write: async (path: string, body: FileBody, options?: CallOptions): Promise<void> => {
      const blob = toBlob(body);
      const call = { timeoutMs: uploadMs(blob.size), ...options };
      await ask(fileOf(path), { method: "PUT", body: blob }, call);
    },
    /** The bytes of a file. */
    read: async (path: string, options?: CallOptions): Promise<Uint8Array> =>
      bytesOf(await send(fileOf(path), {}, options)),
    /** The file as it arrives, for those that do not fit into memory. */
    open: async (path: string, options?: CallOptions): Promise<Response> =>
      open(fileOf(path), {}, options),
    /** What a folder has, by name. Default: /output. */
    list: async (path?: string, options?: CallOptions): Promise<SessionFile[]> =>
      (await ask<{ items: SessionFile[] }>(folder, { query: { path } }, options)).items,
    /** Removes a file, or a folder with all that it has. */
    delete: (path: string, options?: CallOptions): Promise<void> =>
      ask(fileOf(path), { method: "DELETE" }, options),
  };
}

/** The interpreters of a session. Each has variables of its own; files are shared. */
type SessionContexts = Readonly<ReturnType<typeof sessionContexts>>;

function sessionContexts(path: string, ask: Ask) {
  return {
    /** Starts another interpreter; calls choose it as `context: it.context_id`. */
    create: (options?: CallOptions): Promise<SessionContext> =>
      ask(path, { method: "POST" }, options),
    /** All of them, the first one `default`. */
    list: async (options?: CallOptions): Promise<SessionContext[]> =>
      (await ask<{ items: SessionContext[] }>(path, {}, options)).items,
    /** Ends one that has no open call. */
    delete: async (contextId: string, options?: CallOptions): Promise<void> =>
      ask(path + pathOf(contextId), { method: "DELETE" }, options),
  };
}
