import type {
  CallRequest,
  ExecutionRecord,
  Interrupted,
  Session,
  SessionPatch,
  SubmittedJob,
} from "../generated.ts";
import { type RunToEnd, type WaitOptions, withCode, withTools } from "../jobs/jobs.ts";
import { type Ask, pathOf } from "../transport/ask.ts";
import type { CallOptions, Transport } from "../transport/transport.ts";
import {
  type SessionContexts,
  sessionContexts,
  type SessionFiles,
  sessionFiles,
} from "./contents.ts";

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

export function openSession(
  id: string,
  ask: Ask,
  service: Transport,
  runToEnd: RunToEnd,
): OpenSession {
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
