import { parseJson } from "../../../../shared/json.ts";
import { limits } from "../../../../shared/wire/limits.ts";
import type { Command } from "commander";
import type { AsyncSubmitRequest, Problem } from "../../../typescript/src/index.ts";
import { exitCode, UsageError } from "../exit.ts";
import { readText } from "../files/read-text.ts";
import { addCommand, does, type Tool } from "../tool.ts";

/** `airlock batch`: a request per line, queued in one go. */
export function addBatch(program: Command): void {
  addCommand(program, "batch", "queue a job for each line of a file of JSON requests")
    .argument("<file>", "a file with a request per line, or - for standard input")
    .option("--atomic", "queue all of them or none")
    .action(
      does(async ({ airlock, terminal }: Tool, file: string, { atomic }: { atomic?: boolean }) => {
        const jobs = readRequests(await readText(file));
        const answer = await airlock.batch(jobs, { atomic: atomic === true });
        if (terminal.json) {
          terminal.document(answer);
        } else {
          for (const job of answer.jobs) terminal.line(describeAnswer(job));
          terminal.note(`batch ${answer.batch_id}: airlock ps --batch ${answer.batch_id}`);
        }
        return answer.jobs.some((job) => !("status" in job && "created_at" in job))
          ? exitCode.refused
          : 0;
      }),
    );
}

/** One line for each request, in its place. */
function describeAnswer(answer: object): string {
  if ("created_at" in answer && "job_id" in answer) return String(answer.job_id);
  const { code, detail } = answer as Problem;
  return `refused: ${code}: ${detail}`;
}

/** Most jobs of one batch. */
const mostJobs = 1000;

function readRequests(text: string): AsyncSubmitRequest[] {
  const lines = text
    .split("\n")
    .map((line, at) => ({ line: line.trim(), number: at + 1 }))
    .filter(({ line }) => line !== "");
  if (lines.length === 0) throw new UsageError('there is no request: write {"code": …} on a line');
  if (lines.length > mostJobs) {
    throw new UsageError(
      `${lines.length} requests are too many: split -l ${mostJobs} makes files of ${mostJobs}`,
    );
  }
  return lines.map(({ line, number }) => {
    try {
      return parseJson(line, { depth: limits.jsonDepthMax }) as AsyncSubmitRequest;
    } catch (error) {
      throw new UsageError(`line ${number} is not JSON: ${(error as Error).message}`);
    }
  });
}
