import { z } from "zod";
import { base64 } from "../../shared/bytes.ts";
import { JsonError, parseJsonInPieces, parsePlainJsonInPieces } from "../../shared/json.ts";
import { sleep } from "../../shared/turns.ts";
import { ExecutionError } from "../../shared/wire/errors.ts";
import {
  type ExecutionRecord,
  ExecutionStatus,
  ResourceUsage,
  SyncResult,
} from "../../shared/wire/executions.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { TakeEvents } from "../http/context.ts";

/**
 * Sends a request of the caller to the service, as `fetch` does.
 *
 * @param takeEvents Gets the events of a run, in place of an answer with its result.
 */
export type Api = (path: string, init?: RequestInit, takeEvents?: TakeEvents) => Promise<Response>;

/** A request in another service's protocol. */
export interface Call {
  readonly method: string;
  /** Below the facade's base, such as /run_code. */
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: Headers;
  /** The API key that it counts for. */
  readonly key: string | undefined;
  /** The network of a job type; undefined if the caller has no job type of that name. */
  readonly networkOf: (jobType: string) => "none" | "bridge" | undefined;
  readonly bytes: () => Promise<Uint8Array>;
  readonly text: () => Promise<string>;
  /** Reads the files of a body of multipart/form-data. */
  readonly form: () => Promise<{ name: string; bytes: Uint8Array<ArrayBuffer> }[]>;
  readonly api: Api;
  /** Called when code runs or has run: from then on, only a failure of the service is refused. */
  readonly onRunning: () => void;
  /** Aborts when the client hangs up. */
  readonly signal: AbortSignal;
  /** Whether the process is about to end: then nothing waits for room. */
  readonly isStopping: () => boolean;
  /** Counts the requests of the process that wait for room. */
  readonly room: { waiting: number };
}

/** Another service's protocol, over the public interface of this one. */
export interface Facade {
  /** The API key in the headers of a request; absent if the protocol has none, and `compat_key` stands for all. */
  readonly keyOf?: (
    headers: Headers,
    compatKey: string | undefined,
  ) => string | undefined | Promise<string | undefined>;
  answer(call: Call): Promise<Response>;
  /** An error in the form of the protocol. */
  refuse(status: number, message: string): Response;
}

/** Thrown for an answer that the facade's `refuse` makes. */
export class Refusal extends Error {
  override name = "Refusal";
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

const Told = z.object({
  detail: z.string(),
  job_id: z.string().optional(),
  /** Of a call that failed. */
  error: ExecutionError.optional(),
});

/** Errors that are not the code's. Clients of other services take them for failures of the service. */
const ownErrors = new Set<string>([
  "cancelled",
  "service_unavailable",
  "docker_error",
  "config_error",
  "internal_error",
  "unknown",
]);

export function isOwnError({ error }: Pick<SyncResult, "error">): boolean {
  return error !== null && (error.phase === "startup" || ownErrors.has(error.type));
}

const endsBySignal = new Set<string>([
  "abort",
  "arithmetic_error",
  "bus_error",
  "killed",
  "oom",
  "pipe_error",
  "segfault",
]);

/** The number of the signal that ended the code; undefined if it exited, with whatever status. */
export function signalOf({
  exit_code,
  error,
}: Pick<SyncResult, "exit_code" | "error">): number | undefined {
  if (exit_code === null || error === null || !endsBySignal.has(error.type)) return undefined;
  return exit_code - 128;
}

/** The answer to a run: a facade gets more than a client. */
export const Ran = SyncResult.extend({
  status: ExecutionStatus,
  resource_usage: ResourceUsage.nullable(),
});
export type Ran = z.infer<typeof Ran>;

/** What runs a job, besides its code. */
type Job = { readonly code: string } & Readonly<Record<string, unknown>>;

/**
 * Runs a job to its end.
 *
 * @param holdMs As of `submit`.
 * @param lastMs A job whose answer has not begun by then is cancelled, because clients of other services do not wait for
 * long. Once it has begun, its status can no longer say that it should be sent again, so the job ends within its own limits.
 * @throws Refusal with the service's status and words; 503 when no agent had time for the job.
 */
export async function execute(
  call: Pick<Call, "api" | "signal" | "isStopping" | "onRunning" | "room">,
  job: Job,
  holdMs: number,
  lastMs?: number,
): Promise<Ran> {
  const late = new AbortController();
  const timer = lastMs === undefined ? undefined : setTimeout(() => late.abort(), lastMs);
  const api: Api = async (path, init) => {
    const answer = await call.api(path, init);
    if (answer.ok) clearTimeout(timer);
    return answer;
  };
  const signal = AbortSignal.any([call.signal, late.signal]);
  let result: Ran;
  try {
    result = Ran.parse(await submit({ ...call, api, signal }, "/execute", job, holdMs));
  } catch (error) {
    if (late.signal.aborted) {
      throw new Refusal(503, "The job had not ended in time, and was cancelled.");
    }
    throw error;
  } finally {
    clearTimeout(timer);
  }
  refuseUnbegun(result);
  if (!isOwnError(result)) call.onRunning();
  return asThere(result);
}

/** @throws Refusal for a job that no agent has taken within its `queue_timeout`. */
export function refuseUnbegun({ error }: Pick<SyncResult, "error">): void {
  if (error?.type === "timeout") throw new Refusal(503, error.message);
}

/**
 * Sends a job. While the queue is full or the key has made too many requests, it asks again, because clients of other
 * services take a refusal for a verdict.
 *
 * @param path /execute, or /execute/async.
 * @param holdMs How long it asks again, and how long the job may be queued, together.
 * @returns The JSON of the answer.
 * @throws Refusal with the service's status and words.
 */
export async function submit(
  { api, signal, isStopping, room }: Pick<Call, "api" | "signal" | "isStopping" | "room">,
  path: string,
  job: Job,
  holdMs: number,
): Promise<unknown> {
  const endMs = performance.now() + holdMs;
  for (let isWaiting = false; ; isWaiting = true) {
    const queue_timeout = Math.max(1, Math.ceil((endMs - performance.now()) / 1000));
    const answer = await api(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      // Others run empty code, this service refuses it.
      body: JSON.stringify({ ...job, code: job.code || "\n", queue_timeout }),
      signal,
    });
    const text = await answer.text();
    if (answer.ok) return parseAnswer(text);
    const { detail, job_id } = problemOf(text);
    const leftMs = endMs - performance.now();
    const isOver = leftMs <= 0 || signal.aborted || (isWaiting && isStopping());
    // A refusal that names a job has stored it.
    if (![429, 503].includes(answer.status) || job_id !== undefined || isOver) {
      throw new Refusal(answer.status, detail);
    }
    room.waiting += 1;
    // Together they ask about 100 times a second, at random, so that the service has its time.
    const pauseMs = (100 + 10 * room.waiting) * (0.5 + Math.random());
    await sleep(Math.min(leftMs, pauseMs), signal);
    room.waiting -= 1;
  }
}

/** Parses an answer of the service. Numbers that come from code stay as they were written. */
const parseAnswer = (text: string): Promise<unknown> =>
  parseJsonInPieces(text, { depth: 2 * limits.jsonDepthMax });

/** Takes back `json_error`: in other services result.json is an ordinary file, so code that exited with 0 did not fail. */
export function asThere<Ended extends Partial<Pick<SyncResult, "success" | "error" | "exit_code">>>(
  ended: Ended,
): Ended {
  if (ended.error?.type !== "json_error" || ended.exit_code !== 0) return ended;
  const status = "status" in ended && { status: "succeeded" };
  return { ...ended, ...("success" in ended && { success: true }), ...status, error: null };
}

/** The bytes of an answer, in base64; undefined if there are none. */
export async function contentOf(
  { api, signal }: Pick<Call, "api" | "signal">,
  path: string,
): Promise<string | undefined> {
  const answer = await api(path, { signal });
  if (!answer.ok) {
    await answer.body?.cancel();
    return undefined;
  }
  return base64(new Uint8Array(await answer.arrayBuffer()));
}

export const artifactPath = (jobId: string, name: string): string =>
  `/jobs/${jobId}/artifacts/${escaped(name)}`;

/** @param path Below the working folder. */
export const sessionFile = (session: string, path: string): string =>
  `/sessions/${session}/files/${escaped(path)}`;

/** `encodeURIComponent` throws for an unpaired surrogate, which no file name has. */
const escaped = (path: string): string =>
  path.toWellFormed().split("/").map(encodeURIComponent).join("/");

/** The JSON of an answer, if it has any. @throws Refusal with the service's status and words. */
export async function ask(
  { api, signal }: Pick<Call, "api" | "signal">,
  path: string,
  init?: RequestInit,
): Promise<unknown> {
  const answer = await api(path, { ...init, signal });
  if (!answer.ok) throw await refused(answer);
  const text = await answer.text();
  return text === "" ? undefined : parseAnswer(text);
}

/** A refusal with the service's status and words; 500 if a call failed by the service's own fault, which is no conflict. */
export async function refused(answer: Response): Promise<Refusal> {
  const { detail, error } = problemOf(await answer.text());
  // A cancelled call is a conflict with whoever ended the session, or interrupted the call.
  const isOurs = error !== undefined && error.type !== "cancelled" && isOwnError({ error });
  return new Refusal(isOurs ? 500 : answer.status, detail);
}

/** Posts JSON. @throws Refusal with the service's status and words. */
export function post(
  call: Pick<Call, "api" | "signal">,
  path: string,
  body: object,
): Promise<unknown> {
  const headers = { "Content-Type": "application/json" };
  return ask(call, path, { method: "POST", headers, body: JSON.stringify(body) });
}

/** Whether a request was carried out; false if it was a conflict. */
export async function unlessConflict(done: Promise<unknown>): Promise<boolean> {
  try {
    await done;
    return true;
  } catch (error) {
    if (error instanceof Refusal && error.status === 409) return false;
    throw error;
  }
}

/**
 * @param exact A field whose numbers stay as they were written.
 * @throws Refusal 422 that names the field.
 */
export async function parseBody<T>(
  schema: z.ZodType<T>,
  body: string,
  status = 422,
  exact = "",
): Promise<T> {
  let json: unknown;
  try {
    const { jsonDepthMax: depth, requestMaxValues: values } = limits;
    const roomy = { key: exact, depth: 1, values, isExact: true };
    json = await parsePlainJsonInPieces(body, { depth, values, roomy });
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    const { isMalformed, path, message } = error;
    throw new Refusal(
      status,
      isMalformed ? "The body is not JSON." : `${path || "body"}: ${message}`,
    );
  }
  const parsed = schema.safeParse(json);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new Refusal(status, `${issue?.path.join(".") || "body"}: ${issue?.message}`);
}

/** A command that puts the files below /input/work and the code into the working folder, and runs a program on it there. */
export function inWorkingFolder(run: readonly string[], name: string): { command: string[] } {
  const words = shellWords(run.map((word) => word.replaceAll("{file}", name)));
  const fill = `${fillWorkingFolder} && cp {file} ${quoted(name)}`;
  return { command: shellCommand(`${fill} && exec ${words} "$@"`) };
}

/** A command that gives its arguments to the text of a shell. */
export const shellCommand = (text: string): string[] => ["sh", "-c", text, "sh"];

/** Shell text that copies the files below /input/work into the working folder. */
export const fillWorkingFolder = "cp -R /input/work/. . && find . -mindepth 1 -exec chmod u+w {} +";

/** The names in the absolute path that `path` means in a folder. */
export function partsOf(folder: string, path: string): string[] {
  const parts: string[] = [];
  for (const part of (path.startsWith("/") ? path : `${folder}/${path}`).split("/")) {
    if (part === "..") parts.pop();
    else if (part !== "" && part !== ".") parts.push(part);
  }
  return parts;
}

export function shellWords(words: readonly string[]): string {
  return words.map(quoted).join(" ");
}

/** A word of a shell's text. */
function quoted(word: string): string {
  return `'${word.replaceAll("'", String.raw`'\''`)}'`;
}

export function problemOf(text: string): z.infer<typeof Told> {
  try {
    return Told.parse(JSON.parse(text));
  } catch {
    return { detail: text.slice(0, 500) };
  }
}

/** What ended a cell, as notebooks tell it. */
interface Exception {
  readonly name: string;
  readonly value: string;
  readonly traceback: string;
}

/**
 * The exception that ended a cell. What is none, such as a time limit, has the type of its error for a name.
 *
 * @param stderr Its end, or all of it: the traceback is there.
 */
export function exceptionOf(
  { error, status }: Pick<ExecutionRecord, "error" | "status">,
  stderr: string,
): Exception | undefined {
  if (error === null) return undefined;
  const start = stderr.lastIndexOf("Traceback (most recent call last):");
  const [, name, value = ""] = /^([\w.<>]+)(?:: ([^]*))?$/.exec(error.message.trim()) ?? [];
  if (status !== "failed" || name === undefined) {
    return { name: error.type, value: error.message, traceback: stderr.slice(Math.max(0, start)) };
  }
  return { name: name.split(".").at(-1)!, value, traceback: stderr.slice(Math.max(0, start)) };
}
