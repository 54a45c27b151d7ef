import { accessSync, constants } from "node:fs";
import {
  type Airlock,
  type ExecutionRecord,
  ProblemError,
  type ResultItem,
  type ToolCall,
} from "../typescript/src/index.ts";
import { makeFolder } from "./connection.ts";
import { exitCode, exitCodeOf, ExitError, interruptible, isUnreached, UsageError } from "./exit.ts";
import { saveArtifacts } from "./files.ts";
import { plain, type Terminal } from "./terminal.ts";
import type { Tool } from "./tool.ts";

/** Options of commands that make a job. */
export interface FollowedOptions {
  detach?: boolean;
  out?: string;
  force?: boolean;
}

/**
 * Submits a job. With `detach`, prints its id; else follows it until it has ended. An interrupt cancels the job,
 * and so does a reader of the output that is gone.
 */
export async function submitAndFollow(
  tool: Tool,
  { detach, out, force }: FollowedOptions,
  submit: (signal: AbortSignal) => Promise<{ job_id: string }>,
): Promise<number> {
  const { airlock, terminal, settings } = tool;
  if (out !== undefined) makeOut(out);
  const job = await interruptible((signal) => submitOrCancel(tool, submit, signal));
  const { job_id } = job;
  const address = consoleAddress(settings.url, job_id);
  if (detach) {
    if (terminal.json) terminal.document(job);
    else terminal.line(job_id);
    if (terminal.watched) terminal.note(address, "dim");
    return 0;
  }
  if (terminal.watched) terminal.note(address, "dim");
  const { record, stopped } = await interruptible(
    async (signal) => ({
      record: await toItsEnd(tool, job_id, signal),
      stopped: signal.aborted ? (signal.reason as ExitError).code : undefined,
    }),
    { unread: true },
  );
  const saved = out === undefined ? [] : await save(tool, job_id, out, force);
  if (terminal.json) terminal.document(await airlock.wait(job_id));
  else if (terminal.watched) {
    if (record.output) terminal.note(`output: ${outputOf(record)}`, "dim");
    for (const path of saved) terminal.note(`saved ${plain(path)}`, "dim");
  }
  if (!terminal.json) {
    for (const warning of warningsOf(record)) terminal.note(`airlock: ${plain(warning)}`);
  }
  const end = explainEnd(record);
  if (end !== undefined && !terminal.json) terminal.note(`airlock: ${end}`);
  return stopped ?? exitCodeOfRecord(record);
}

/** Makes the folder for the artifacts before there is a job, which would run for nothing. */
function makeOut(folder: string): void {
  try {
    makeFolder(folder);
    accessSync(folder, constants.W_OK);
  } catch (error) {
    throw new UsageError(`--out: ${folder} cannot be written: ${(error as Error).message}`);
  }
}

function sayCancelling(terminal: Terminal, { reason }: AbortSignal): void {
  const { message } = reason as Error;
  terminal.note(`airlock: ${message}: cancelling the job; Ctrl-C leaves at once`);
}

/** How long the answer to an interrupted request is awaited. */
const lateAnswerMs = 3000;

/** Submits a job. If the request is interrupted, waits for its answer, which alone names the job, and cancels that job. */
async function submitOrCancel(
  { airlock, terminal }: Tool,
  submit: (signal: AbortSignal) => Promise<{ job_id: string }>,
  signal: AbortSignal,
): Promise<{ job_id: string }> {
  const late = new AbortController();
  const endLater = (): void => {
    sayCancelling(terminal, signal);
    const { code, message } = signal.reason as ExitError;
    const why = `${message}; the service did not answer, and may have made a job (airlock ps)`;
    setTimeout(() => late.abort(new ExitError(code, why)), lateAnswerMs).unref();
  };
  signal.addEventListener("abort", endLater, { once: true });
  const job = await submit(late.signal);
  if (signal.aborted) {
    await airlock.cancel(job.job_id);
    throw signal.reason;
  }
  return job;
}

/**
 * Fetches the artifacts until Ctrl-C. An error says how to fetch them later, because the job need not run
 * again.
 */
async function save(tool: Tool, jobId: string, out: string, force = false): Promise<string[]> {
  const again = `The job has ended; airlock artifacts ${jobId} -o FOLDER fetches its files.`;
  return interruptible(async (signal) => {
    try {
      return await saveArtifacts(tool, jobId, out, { force, signal });
    } catch (error) {
      if (error instanceof ProblemError) throw error;
      const [code, why] = signal.aborted
        ? [exitCode.interrupted, "interrupted"]
        : [exitCodeOf(error), (error as Error).message];
      throw new ExitError(code, `${why}\n${again}`);
    }
  });
}

/** The job's result, as much of it as fits into a line or two. */
function outputOf({ output }: EndedRecord): string {
  const text = plain(JSON.stringify(output));
  return text.length > 160 ? `${text.slice(0, 159)}…` : text;
}

/** An abort cancels the job; what it wrote until then still arrives. */
async function toItsEnd(tool: Tool, jobId: string, signal: AbortSignal): Promise<EndedRecord> {
  const { airlock, terminal } = tool;
  const cancel = (): void => {
    sayCancelling(terminal, signal);
    airlock.cancel(jobId).catch(() => {});
  };
  if (signal.aborted) cancel();
  signal.addEventListener("abort", cancel, { once: true });
  try {
    return await (terminal.json ? airlock.wait(jobId) : follow(tool, jobId));
  } catch (error) {
    if (isUnreached(error)) {
      const commands = `airlock logs -f ${jobId} follows it, airlock cancel ${jobId} ends it`;
      terminal.note(`airlock: job ${jobId} may still run: ${commands}`);
    }
    throw error;
  } finally {
    signal.removeEventListener("abort", cancel);
  }
}

export type EndedRecord = Omit<ExecutionRecord, "stdout" | "stderr">;

interface FollowOptions {
  /** Output before this time (epoch ms) is left out. */
  since?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** Writes a job's output as it happens, and returns its record when it has ended. */
export async function follow(
  tool: Tool,
  jobId: string,
  { since = 0, signal }: FollowOptions = {},
): Promise<EndedRecord> {
  const { airlock, terminal } = tool;
  const output = outputWriter(tool, jobId, { isWhole: since === 0, signal });
  let waits = "";
  const cut = new Set<string>();
  for await (const { event, data } of airlock.stream(jobId, { signal })) {
    if (event === "end") {
      await output.end();
      if (data.error?.type === "compile_error") await writeCompilation(tool, jobId, signal);
      return data;
    }
    if (event === "stdout" || event === "stderr") {
      if (Date.parse(data.at) < since) continue;
      await output.write(event, data.text);
    } else if (event === "status") {
      const reason = "reason" in data ? data.reason : "";
      // A build takes minutes, which somebody who reads a log later wants to know of, too.
      const isBuilding = reason.startsWith("Waits for ");
      if ((terminal.watched || isBuilding) && reason !== "" && reason !== waits) {
        terminal.note(isBuilding ? reason : `waits: ${reason}`, "dim");
      }
      waits = reason;
    } else if ((event === "truncated" || event === "held") && !cut.has(data.stream)) {
      cut.add(data.stream);
      terminal.note(`airlock: ${data.stream} is near its limit: the rest comes at the end, cut`);
    } else if (event === "display") {
      await terminal.write(`${textOf(data)}\n`);
    } else if (event === "tool_call") {
      terminal.note(`airlock: ${describeCall(data)}`);
    } else if (event === "retry") {
      output.restart();
      terminal.note("airlock: the agent was lost; the job starts again");
    }
  }
  return airlock.wait(jobId, { signal });
}

/** What code showed, as text; of what has none, such as a picture alone, its types. */
const textOf = ({ data }: ResultItem): string =>
  data["text/plain"] ?? `[${Object.keys(data).join(", ")}]`;

/** Writes what the compiler of a job said, which no event brings. */
async function writeCompilation(
  { airlock, terminal }: Tool,
  jobId: string,
  signal: AbortSignal | undefined,
): Promise<void> {
  const { compile } = await airlock.get(jobId, { signal });
  if (compile) await terminal.writeError(compile.stdout + compile.stderr);
}

/** The exit code for the shell: the code's own status, or the reason why it has none. */
export function exitCodeOfRecord({ status, exit_code: own, error }: EndedRecord): number {
  if (status === "timeout") return exitCode.timeout;
  if (status === "cancelled") return exitCode.interrupted;
  if (status === "oom") return exitCode.outOfMemory;
  if (status === "succeeded") return 0;
  if (error?.type === "compile_error") return exitCode.failed;
  // Code that ended with 0 may have failed all the same: its result cannot be read, its files went over a limit.
  if (own !== null && own !== undefined) return own === 0 ? exitCode.failed : own;
  return error ? exitCode.service : exitCode.failed;
}

/** Warnings of a job that has ended, without those that its error already contains. */
function warningsOf({ warnings = [], error }: EndedRecord): string[] {
  return warnings.filter((warning) => error?.message.includes(warning) !== true);
}

/** One line for people about how a job ended, unless it simply succeeded. */
export function explainEnd({ status, error, exit_code: own }: EndedRecord): string | undefined {
  if (status === "succeeded") return undefined;
  const code = own === null || own === undefined ? "" : ` (exit code ${own})`;
  if (!error) return status + code;
  const type = error.type === status ? "" : `${error.type}: `;
  return `${status}${code}: ${type}${error.message}`;
}

type Stream = "stdout" | "stderr";

/** Between two readings of the same stream, so that they take little of the rate limit. */
const everyMs = 2000;

/**
 * Writes the output of a job as its events bring it. They bring text: bytes that are not UTF-8 are U+FFFD in
 * it. Where the output goes into a file or a pipe, the bytes themselves are read from there on, if it is written
 * from its beginning (`isWhole`).
 */
function outputWriter(
  { airlock, terminal }: Tool,
  jobId: string,
  { isWhole, signal }: { isWhole: boolean; signal: AbortSignal | undefined },
) {
  const written = { stdout: 0, stderr: 0 };
  const readAt: Partial<Record<Stream, number>> = {};
  const put = (stream: Stream, bytes: string | Uint8Array): Promise<void> =>
    stream === "stdout" ? terminal.write(bytes) : terminal.writeError(bytes);

  async function readOn(stream: Stream): Promise<void> {
    readAt[stream] = performance.now();
    const path = `/jobs/${jobId}/logs?stream=${stream}&offset=${written[stream]}`;
    try {
      const answer = await airlock.request(path, {}, { signal });
      const bytes = Buffer.from(await answer.arrayBuffer());
      written[stream] += bytes.length;
      await put(stream, bytes);
    } catch (error) {
      // The job has started again, and has written less so far.
      if (!(error instanceof ProblemError) || error.status !== 416) throw error;
    }
  }

  return {
    async write(stream: Stream, text: string): Promise<void> {
      const last = readAt[stream];
      const isBytes = isWhole && text.includes("\uFFFD") && !process[stream].isTTY;
      if (last === undefined && !isBytes) {
        written[stream] += Buffer.byteLength(text);
        return put(stream, text);
      }
      if (performance.now() - (last ?? -everyMs) >= everyMs) await readOn(stream);
    },
    restart(): void {
      written.stdout = written.stderr = 0;
    },
    /** Writes what is left, once the job has ended. */
    async end(): Promise<void> {
      for (const stream of ["stdout", "stderr"] as const) {
        if (readAt[stream] !== undefined) await readOn(stream);
      }
    },
  };
}

/** Lines about the tool calls of a running job that wait for an answer. */
export async function* waitingCalls({ api }: Airlock, id: string): AsyncGenerator<string, void> {
  for (let after = 0; ;) {
    const { calls } = await api.listToolCalls({ id, after });
    const last = calls.at(-1);
    if (!last) return;
    yield* calls.map(describeCall);
    after = last.number;
  }
}

const mostCharacters = 160;

/** "call 2 waits for an answer: get_price({"item":"tea"})". */
function describeCall({ number, name, arguments: given }: ToolCall): string {
  const text = JSON.stringify(given);
  const shown = text.length > mostCharacters ? `${text.slice(0, mostCharacters - 1)}…` : text;
  return plain(`call ${number} waits for an answer: ${name}(${shown})`);
}

/** Address of a job's page in the service's console. */
export function consoleAddress(url: string, jobId: string): string {
  return `${url}/console/executions/${jobId}`;
}
