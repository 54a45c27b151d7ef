import { accessSync, constants } from "node:fs";
import { ProblemError } from "../../../typescript/src/index.ts";
import { makeFolder } from "../make-folder.ts";
import { consoleAddress } from "./console-address.ts";
import { exitCode, exitCodeOf, ExitError, isUnreached, UsageError } from "../exit.ts";
import { type EndedRecord, exitCodeOfRecord, explainEnd, follow, warningsOf } from "./follow.ts";
import { interruptible } from "../interrupt.ts";
import { saveArtifacts } from "../files/save-artifacts.ts";
import { plain, type Terminal } from "../terminal.ts";
import type { Tool } from "../tool.ts";

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
