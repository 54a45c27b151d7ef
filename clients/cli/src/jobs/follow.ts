import type { ExecutionRecord, ResultItem } from "../../../typescript/src/index.ts";
import { exitCode } from "../exit.ts";
import type { Tool } from "../tool.ts";
import { describeCall } from "./tool-calls.ts";
import { outputWriter } from "./write-output.ts";

export type EndedRecord = Omit<ExecutionRecord, "stdout" | "stderr">;

export interface FollowOptions {
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
      if (terminal.watched && reason !== "" && reason !== waits) {
        terminal.note(`waits: ${reason}`, "dim");
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
export function warningsOf({ warnings = [], error }: EndedRecord): string[] {
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
