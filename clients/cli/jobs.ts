import type { Command } from "commander";
import { parseJson } from "../../shared/json.ts";
import { limits } from "../../shared/wire/limits.ts";
import type {
  AsyncSubmitRequest,
  ExecutionErrorType,
  ExecutionRecord,
  ExecutionStatus,
  Problem,
} from "../typescript/src/index.ts";
import { exitCode, interruptible, UsageError } from "./exit.ts";
import { readText } from "./files.ts";
import {
  consoleAddress,
  exitCodeOfRecord,
  explainEnd,
  follow,
  submitAndFollow,
  waitingCalls,
} from "./follow.ts";
import { pairs, submitFields, withJobOptions } from "./run.ts";
import { age, between, bytes, duration, parseNumber, parseSince, plain } from "./terminal.ts";
import {
  addCommand,
  forEach,
  given,
  numberOption,
  show,
  showPage,
  tenantColumn,
  type Tool,
} from "./tool.ts";

const statuses = [
  "queued",
  "running",
  "succeeded",
  "failed",
  "timeout",
  "oom",
  "cancelled",
] satisfies ExecutionStatus[];

/** Commands about jobs that were submitted. */
export function addJobs(program: Command): void {
  addCommand(program, "ps", "list executions, the newest first")
    .option("-s, --status <status>", "with this status (repeatable)", {
      choices: statuses,
      many: true,
    })
    .option("-e, --error <text>", "with this text in the error")
    .option("-t, --job-type <name>", "of one job type")
    .option("--batch <id>", "of one batch")
    .option("-m, --metadata <name=value>", "with these words (repeatable)", pairs)
    .option(...numberOption)
    .does(async (tool, { status, error, jobType, batch, metadata, number }) => {
      const page = await tool.airlock.api.listExecutions({
        ...given({ status, error, jobType, batchId: batch }),
        ...(metadata && { metadata: Object.entries(metadata).map((pair) => pair.join(":")) }),
        limit: number,
        fields: "status,job_type,created_at,started_at,ended_at,exit_code",
      });
      showPage(tool, page, number, "no executions", {
        ID: (item) => item.execution_id,
        STATUS: (item) => item.status ?? "",
        WAITED: ({ created_at = null, started_at, ended_at = null }) =>
          between(created_at, started_at ?? ended_at),
        RAN: ({ started_at, ended_at = null }) =>
          started_at ? between(started_at, ended_at) : "-",
        AGE: (item) => age(item.created_at),
        ...tenantColumn(tool),
        TYPE: (item) => item.job_type ?? "",
      });
    });

  addCommand(program, "show", "show the record of a job")
    .argument("<job>", "id of the job, or the end of the id")
    .does(async ({ airlock, terminal, settings }, id) => {
      const record = await airlock.api.getExecution({ id, view: "all" });
      if (terminal.json) return terminal.document(record);
      const job = record.status === "queued" ? await airlock.api.getJob({ id }) : undefined;
      for (const line of describeRecord(record, job?.message)) terminal.line(line);
      if (record.tools) {
        for await (const line of waitingCalls(airlock, id)) terminal.line(row("tools", line));
      }
      terminal.line(`console    ${consoleAddress(settings.url, id)}`);
    });

  addCommand(program, "logs", "show the output of a job")
    .argument("<job>", "id of the job, or the end of the id")
    .option("-f, --follow", "stay until the job has ended; Ctrl-C leaves it running")
    .option(
      "--since <time>",
      "only what came after a time, or in the last 30s, 10m, 2h",
      (text: string) => parseSince(text),
    )
    .does(async (tool, id, { follow, since }) => showLogs(tool, id, follow === true, since));

  addCommand(program, "cancel", "end jobs")
    .argument("<job...>", "ids of the jobs, or their ends")
    .does(
      forEach(
        (airlock, id) => airlock.cancel(id),
        ({ status }, id) => `${id} ${status === "running" ? "is being cancelled" : status}`,
      ),
    );

  withJobOptions(
    addCommand(program, "rerun", "run a job once more").argument(
      "<job>",
      "its id, or the end of it",
    ),
  ).does(async (tool, id, options) => {
    const rerunRequest = await submitFields(tool, options);
    return submitAndFollow(tool, options, (signal) =>
      tool.airlock.api.rerunJob({ id, rerunRequest }, { signal }),
    );
  });

  withJobOptions(
    addCommand(program, "fork", "run other code on the input of a job")
      .argument("<job>", "its id, or the end of it")
      .argument("<file>", "the other code, or - for standard input"),
  ).does(async (tool, id, file, options) => {
    const forkRequest = { ...(await submitFields(tool, options)), code: await readText(file) };
    return submitAndFollow(tool, options, (signal) =>
      tool.airlock.api.forkJob({ id, forkRequest }, { signal }),
    );
  });
}

async function showLogs(
  tool: Tool,
  id: string,
  stays: boolean,
  since: number | undefined,
): Promise<number> {
  const { airlock, terminal } = tool;
  const record = await airlock.api.getExecution({ id });
  if (record.ended_at === null && !stays) {
    if (terminal.json) terminal.document({ stdout: record.stdout, stderr: record.stderr });
    await terminal.write(record.stdout);
    await terminal.writeError(record.stderr);
    for await (const line of waitingCalls(airlock, id)) terminal.note(`airlock: ${line}`);
    terminal.note("airlock: the job still runs; -f follows it");
    return 0;
  }
  if (terminal.json && !stays) {
    terminal.document({ stdout: record.stdout, stderr: record.stderr });
    return 0;
  }
  return interruptible(async (signal) => {
    try {
      const ended = await follow(tool, id, { since, signal });
      const end = explainEnd(ended);
      if (end !== undefined) terminal.note(`airlock: ${end}`);
      return stays ? exitCodeOfRecord(ended) : 0;
    } catch (error) {
      if (!signal.aborted) throw error;
      terminal.note("airlock: left; the job goes on");
      return exitCode.interrupted;
    }
  });
}

const row = (name: string, value: string): string => `${name.padEnd(10)} ${plain(value)}`;

/**
 * A record as lines for people.
 *
 * @param reason - What the job waits for.
 */
function* describeRecord(record: ExecutionRecord, reason?: string): Generator<string> {
  const { status, error, timing, resource_usage: usage, artifacts = [], metadata = {} } = record;
  yield row("job", record.execution_id);
  yield row(
    "status",
    status + (record.exit_code === null ? "" : ` (exit code ${record.exit_code})`),
  );
  if (reason) yield row("reason", reason);
  if (error) yield row("error", `${error.type}: ${error.message}`);
  if (record.compile) yield row("compiler", describeCompilation(record.compile));
  for (const warning of record.warnings ?? []) yield row("warning", warning);
  if (record.tenant) yield row("tenant", record.tenant);
  yield row("job type", `${record.job_type} ${record.job_version}`);
  yield row("submitted", `${record.created_at} (${age(record.created_at)} ago)`);
  yield row("waited", between(record.created_at, record.started_at ?? record.ended_at));
  if (record.started_at) yield row("ran", between(record.started_at, record.ended_at));
  for (const attempt of record.attempts ?? []) {
    yield row("attempt", describeAttempt(attempt, status));
  }
  if (timing) {
    const phases = Object.entries(timing).filter(([, ms]) => typeof ms === "number");
    yield row(
      "phases",
      phases
        .map(([name, ms]) => `${name.replace(/_ms$/, "")} ${duration(ms as number)}`)
        .join(", "),
    );
  }
  if (usage)
    yield row(
      "usage",
      Object.entries(usage)
        .map(([name, value]) => `${name} ${value}`)
        .join(", "),
    );
  if (record.parent_execution_id) yield row("parent", record.parent_execution_id);
  for (const [name, value] of Object.entries(metadata)) yield row("metadata", `${name}=${value}`);
  for (const { name, size_bytes } of artifacts)
    yield row("artifact", `${name} (${bytes(size_bytes)})`);
  if (record.output) yield row("output", JSON.stringify(record.output));
}

/** "exit code 1 after 31 ms". */
function describeCompilation({ exit_code: code, ms }: NonNullable<ExecutionRecord["compile"]>) {
  return `${code === null ? "killed" : `exit code ${code}`} after ${duration(ms)}`;
}

type Attempt = NonNullable<ExecutionRecord["attempts"]>[number];

/** "1 on host-1: lease expired after 3 min (its code began after 120 ms)". */
function describeAttempt(attempt: Attempt, status: ExecutionRecord["status"]): string {
  const { outcome, error, claimed_at, code_started_at, ended_at } = attempt;
  const isOwn = outcome === null || outcome === "result";
  const end = ended_at === null ? "running" : isOwn ? status : outcome.replace("_", " ");
  const took = `${ended_at === null ? "for" : "after"} ${between(claimed_at, ended_at)}`;
  const begun =
    code_started_at && ` (its code began after ${between(claimed_at, code_started_at)})`;
  const why = !isOwn && error ? `: ${error.type}: ${error.message}` : "";
  const holder = attempt.agent ?? attempt.agent_id;
  return `${attempt.attempt} on ${holder}: ${end} ${took}${begun ?? ""}${why}`;
}

/** `airlock batch`: a request per line, queued in one go. */
export function addBatch(program: Command): void {
  addCommand(program, "batch", "queue a job for each line of a file of JSON requests")
    .argument("<file>", "a file with a request per line, or - for standard input")
    .option("--atomic", "queue all of them or none")
    .does(async (tool, file, { atomic = false }) => {
      const answer = await tool.airlock.batch(readRequests(await readText(file)), { atomic });
      show(tool, answer, ...answer.jobs.map(describeAnswer));
      if (!tool.terminal.json) {
        tool.terminal.note(`batch ${answer.batch_id}: airlock ps --batch ${answer.batch_id}`);
      }
      return answer.jobs.some((job) => !("status" in job && "created_at" in job))
        ? exitCode.refused
        : 0;
    });
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

/** Commands about the dead letter queue. */
export function addDlq(program: Command): void {
  const dlq = addCommand(program, "dlq", "asynchronous jobs that failed").command;
  addCommand(dlq, "list|ls", "list them, the newest first")
    .option("--error-type <type>", "with one type of error")
    .option(...numberOption)
    .does(async (tool, { errorType, number }) => {
      const page = await tool.airlock.api.listDeadLetters({
        ...given({ errorType: errorType as ExecutionErrorType | undefined }),
        limit: number,
      });
      showPage(tool, page, number, "no dead letters", {
        ID: ({ id }) => String(id),
        JOB: ({ job_id }) => job_id,
        AGE: ({ created_at }) => age(created_at),
        ...tenantColumn(tool),
        ERROR: ({ error_type, error_message }) => `${error_type}: ${error_message ?? ""}`,
      });
    });
  addCommand(dlq, "stats", "count them by type of error").does(async ({ airlock, terminal }) => {
    const stats = await airlock.api.getDeadLetterStats();
    if (terminal.json) return terminal.document(stats);
    terminal.table(
      [{ title: "COUNT", right: true }, { title: "ERROR TYPE" }],
      [
        ...Object.entries(stats.by_error_type).map(([type, count]) => [String(count), type]),
        [String(stats.total), "all"],
      ],
    );
  });
  addCommand(dlq, "rm", "remove entries")
    .argument("<dead-letter...>", "their ids")
    .does(async (tool, ids) => {
      for (const id of ids) parseNumber(id, "<dead-letter>");
      const remove = forEach(
        ({ api }, id) => api.deleteDeadLetter({ id: Number(id) }),
        (_, id) => `${id} removed`,
      );
      return remove(tool, ids);
    });
}
