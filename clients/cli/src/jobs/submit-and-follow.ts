import { consoleAddress } from "./console-address.ts";
import { exitCode, ExitError, UsageError } from "../exit.ts";
import { type EndedRecord, exitCodeOfRecord, explainEnd, follow } from "./follow.ts";
import { interruptible } from "../interrupt.ts";
import { saveArtifacts } from "../files/save-artifacts.ts";
import { plain } from "../terminal.ts";
import type { Tool } from "../tool.ts";

/** Options of commands that make a job. */
export interface FollowedOptions {
  detach?: boolean;
  out?: string;
  force?: boolean;
}

/** Submits a job. With `detach`, prints its id; else follows it until it has ended. */
export async function submitAndFollow(
  tool: Tool,
  { detach, out, force }: FollowedOptions,
  submit: (signal: AbortSignal) => Promise<{ job_id: string }>,
): Promise<number> {
  const { airlock, terminal, settings } = tool;
  const job = await interruptible(submit);
  const { job_id } = job;
  const address = terminal.style("dim", consoleAddress(settings.url, job_id));
  if (detach) {
    if (terminal.json) terminal.document(job);
    else terminal.line(job_id);
    if (terminal.watched) terminal.note(address);
    return 0;
  }
  if (terminal.watched) terminal.note(address);
  const { record, isCancelled } = await interruptible(async (signal) => ({
    record: await toItsEnd(tool, job_id, signal),
    isCancelled: signal.aborted,
  }));
  const saved = out === undefined ? [] : await save(tool, job_id, out, force);
  if (terminal.json) terminal.document(await airlock.wait(job_id));
  else if (terminal.watched) {
    if (record.output) terminal.note(terminal.style("dim", `output: ${outputOf(record)}`));
    for (const path of saved) terminal.note(terminal.style("dim", `saved ${plain(path)}`));
  }
  const end = explainEnd(record);
  if (end !== undefined && !terminal.json) terminal.note(`airlock: ${end}`);
  return isCancelled ? exitCode.interrupted : exitCodeOfRecord(record);
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
      if (signal.aborted) throw new ExitError(exitCode.interrupted, `interrupted\n${again}`);
      if (error instanceof UsageError) throw new UsageError(`${error.message}\n${again}`);
      throw error;
    }
  });
}

/** The job's result, as much of it as fits into a line or two. */
function outputOf({ output }: EndedRecord): string {
  const text = plain(JSON.stringify(output));
  return text.length > 160 ? `${text.slice(0, 159)}…` : text;
}

/** An interrupt cancels the job; what it wrote until then still arrives. */
async function toItsEnd(tool: Tool, jobId: string, signal: AbortSignal): Promise<EndedRecord> {
  const { airlock, terminal } = tool;
  const cancel = (): void => {
    terminal.note("airlock: cancelling the job; press Ctrl-C again to leave at once");
    airlock.cancel(jobId).catch(() => {});
  };
  if (signal.aborted) cancel();
  signal.addEventListener("abort", cancel, { once: true });
  try {
    return await (terminal.json ? airlock.wait(jobId) : follow(tool, jobId));
  } finally {
    signal.removeEventListener("abort", cancel);
  }
}
