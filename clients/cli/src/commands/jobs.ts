import type { Command } from "commander";
import type { ExecutionRecord } from "../../../typescript/src/index.ts";
import { consoleAddress } from "../jobs/console-address.ts";
import { describeRecord, row } from "../jobs/describe-record.ts";
import { exitCode } from "../exit.ts";
import { exitCodeOfRecord, explainEnd, follow } from "../jobs/follow.ts";
import { readText } from "../files/read-text.ts";
import { forEach } from "../for-each.ts";
import { interruptible } from "../interrupt.ts";
import { submitAndFollow } from "../jobs/submit-and-follow.ts";
import { waitingCalls } from "../jobs/tool-calls.ts";
import { showPage, tenantColumn } from "../list.ts";
import { addCommand, does, oneOf, type Tool } from "../tool.ts";
import { age, between, collect, parseCount, parsePairs, parseSince } from "../words.ts";
import { submitFields, withJobOptions, type SubmitOptions } from "./run.ts";

interface ListOptions {
  status?: string[];
  error?: string;
  jobType?: string;
  batch?: string;
  metadata?: string[];
  number: string;
}

const statuses = ["queued", "running", "succeeded", "failed", "timeout", "oom", "cancelled"];

/** Commands about jobs that were submitted. */
export function addJobs(program: Command): void {
  addCommand(program, "ps", "list executions, the newest first")
    .addOption(
      oneOf("-s, --status <status>", "with this status (repeatable)", statuses).argParser(collect),
    )
    .option("-e, --error <text>", "with this text in the error")
    .option("-t, --job-type <name>", "of one job type")
    .option("--batch <id>", "of one batch")
    .option("-m, --metadata <name=value>", "with these words (repeatable)", collect)
    .option("-n, --number <count>", "at most so many", "20")
    .action(does(listExecutions));

  addCommand(program, "show", "show the record of a job")
    .argument("<job>", "id of the job, or the end of the id")
    .action(
      does(async ({ airlock, terminal, settings }: Tool, id: string) => {
        const record = await airlock.api.getExecution({ id, view: "all" });
        if (terminal.json) return terminal.document(record);
        const job = record.status === "queued" ? await airlock.api.getJob({ id }) : undefined;
        for (const line of describeRecord(record, job?.message)) terminal.line(line);
        if (record.tools) {
          for await (const line of waitingCalls(airlock, id)) terminal.line(row("tools", line));
        }
        terminal.line(`console    ${consoleAddress(settings.url, id)}`);
      }),
    );

  addCommand(program, "logs", "show the output of a job")
    .argument("<job>", "id of the job, or the end of the id")
    .option("-f, --follow", "stay until the job has ended; Ctrl-C leaves it running")
    .option("--since <time>", "only what came after a time, or in the last 30s, 10m, 2h")
    .action(does(showLogs));

  addCommand(program, "cancel", "end jobs")
    .argument("<job...>", "ids of the jobs, or their ends")
    .action(
      does(async (tool: Tool, ids: string[]) =>
        forEach(
          tool,
          ids,
          (id) => tool.airlock.cancel(id),
          ({ status }, id) => `${id} ${status === "running" ? "is being cancelled" : status}`,
        ),
      ),
    );

  const rerun = addCommand(program, "rerun", "run a job once more").argument(
    "<job>",
    "its id, or the end of it",
  );
  withJobOptions(rerun).action(
    does(async (tool: Tool, id: string, options: SubmitOptions) => {
      const rerunRequest = await submitFields(tool, options);
      return submitAndFollow(tool, options, (signal) =>
        tool.airlock.api.rerunJob({ id, rerunRequest }, { signal }),
      );
    }),
  );

  const fork = addCommand(program, "fork", "run other code on the input of a job")
    .argument("<job>", "its id, or the end of it")
    .argument("<file>", "the other code, or - for standard input");
  withJobOptions(fork).action(
    does(async (tool: Tool, id: string, file: string, options: SubmitOptions) => {
      const forkRequest = {
        ...(await submitFields(tool, options)),
        code: await readText(file),
      };
      return submitAndFollow(tool, options, (signal) =>
        tool.airlock.api.forkJob({ id, forkRequest }, { signal }),
      );
    }),
  );
}

async function listExecutions(tool: Tool, options: ListOptions): Promise<void> {
  const { status, error, jobType, batch, metadata, number } = options;
  const page = await tool.airlock.api.listExecutions({
    ...(status && { status: status as ExecutionRecord["status"][] }),
    ...(error !== undefined && { error }),
    ...(jobType !== undefined && { jobType }),
    ...(batch !== undefined && { batchId: batch }),
    ...(metadata && {
      metadata: Object.entries(parsePairs(metadata, "--metadata")).map((pair) => pair.join(":")),
    }),
    limit: parseCount(number),
    fields: "status,job_type,created_at,started_at,ended_at,exit_code",
  });
  showPage(tool, page, number, "no executions", {
    ID: (item) => item.execution_id,
    STATUS: (item) => item.status ?? "",
    WAITED: ({ created_at = null, started_at, ended_at = null }) =>
      between(created_at, started_at ?? ended_at),
    RAN: ({ started_at, ended_at = null }) => (started_at ? between(started_at, ended_at) : "-"),
    AGE: (item) => age(item.created_at),
    ...tenantColumn(tool),
    TYPE: (item) => item.job_type ?? "",
  });
}

async function showLogs(
  tool: Tool,
  id: string,
  { follow: stays = false, since }: { follow?: boolean; since?: string },
): Promise<number> {
  const { airlock, terminal } = tool;
  const from = since === undefined ? undefined : parseSince(since);
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
      const ended = await follow(tool, id, { since: from, signal });
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
