import type { Command } from "commander";
import type {
  CallRequest,
  OpenSession,
  SessionRequest,
  SessionStatus,
} from "../../../typescript/src/index.ts";
import { sessionStatuses } from "../../../../shared/wire/client/session.ts";
import { exitCode, ExitError, UsageError } from "../exit.ts";
import { readText } from "../files/read-text.ts";
import { forEach } from "../for-each.ts";
import { submitAndFollow } from "../jobs/submit-and-follow.ts";
import { prompt } from "../sessions/prompt.ts";
import { showPage, tenantColumn } from "../list.ts";
import { addCommand, does, oneOf, type Tool } from "../tool.ts";
import { age, collect, parseCount, parseDuration, parsePairs } from "../words.ts";
import { submitFields, type SubmitOptions, withCallOptions } from "./run.ts";

interface SessionOptions {
  jobType?: string;
  require?: string[];
  idleTimeout?: string;
  lifetime?: string;
  metadata?: string[];
}

/** Commands about sessions: interpreters that remember. */
export function addSessions(program: Command): void {
  const repl = addCommand(program, "repl", "an interactive Python in a session").argument(
    "[session]",
    "id of the session, or the end of the id; default: a new session, which ends with the command",
  );
  withSessionOptions(repl).action(
    does(async (tool: Tool, id: string | undefined, options: SessionOptions) => {
      if (id !== undefined) return prompt(tool, await attachOpen(tool, id));
      await using session = await tool.airlock.sessions.create(sessionFields(options));
      return await prompt(tool, session);
    }),
  );

  const session = addCommand(program, "session", "interpreters that remember from call to call");
  const create = addCommand(session, "create", "start one; prints its id");
  withSessionOptions(create).action(
    does(async ({ airlock, terminal }: Tool, options: SessionOptions) => {
      const made = await airlock.sessions.create(sessionFields(options));
      const state = await made.info();
      if (terminal.json) return terminal.document(state);
      terminal.line(made.id);
      if (state.message !== undefined) terminal.note(`waits: ${state.message}`, "dim");
    }),
  );

  addCommand(session, "list", "list them, the newest first")
    .alias("ls")
    .addOption(oneOf("-s, --status <status>", "with this status", sessionStatuses))
    .option("-n, --number <count>", "at most so many", "20")
    .action(does(listSessions));

  const run = addCommand(session, "run", "run a file in a session, with the variables it has")
    .argument("<session>", "id of the session, or the end of the id")
    .argument("<file>", "a file of Python, or - for standard input")
    .option("--stdin <file>", "what the code reads with input(), or - for this command's")
    .option("-f, --file <path>", "a file for its working folder: path or path=name", collect)
    .option("--restart", "start its interpreter anew first");
  withCallOptions(run).action(
    does(
      async (tool: Tool, id: string, file: string, options: SubmitOptions & { restart?: true }) => {
        if (file === "-" && options.stdin === "-") {
          throw new UsageError("standard input can be the code or --stdin, not both");
        }
        const { files = [], ...fields } = await submitFields(tool, options);
        const call: CallRequest = {
          ...fields,
          ...(files.length > 0 && { files: files.map((one) => ({ ...one, to: "work" })) }),
          ...(options.restart && { restart: true }),
          code: await readText(file),
        };
        const { submit } = tool.airlock.sessions.attach(id);
        return submitAndFollow(tool, options, (signal) => submit(call, { signal }));
      },
    ),
  );

  addCommand(session, "end", "end sessions, with their variables and files")
    .alias("rm")
    .argument("<session...>", "their ids, or the ends of them")
    .action(
      does(async (tool: Tool, ids: string[]) =>
        forEach(
          tool,
          ids,
          (id) => tool.airlock.sessions.attach(id).close(),
          (_, id) => `${id} has ended`,
        ),
      ),
    );
}

/** @throws ExitError if the session has ended, before somebody types what it cannot run. */
async function attachOpen({ airlock }: Tool, id: string): Promise<OpenSession> {
  const session = airlock.sessions.attach(id);
  const { status, reason } = await session.info();
  if (status !== "ended") return session;
  throw new ExitError(
    exitCode.refused,
    `session ${id} has ended (${reason}): airlock repl makes one`,
  );
}

function withSessionOptions(command: Command): Command {
  return command
    .option("-t, --job-type <name>", "job type")
    .option("-r, --require <package>", "a package to install first (repeatable)", collect)
    .option("--idle-timeout <duration>", "ends without a call for so long; default: 10m")
    .option("--lifetime <duration>", "ends after so long, whatever it does; default: 1h")
    .option("-m, --metadata <name=value>", "your own words about it (repeatable)", collect);
}

const seconds = (text: string, option: string): number =>
  Math.round(parseDuration(text, option) / 1000);

function sessionFields(options: SessionOptions): SessionRequest {
  const { jobType, require, idleTimeout, lifetime, metadata } = options;
  return {
    ...(jobType !== undefined && { job_type: jobType }),
    ...(require && { requirements: require }),
    ...(idleTimeout !== undefined && { idle_timeout: seconds(idleTimeout, "--idle-timeout") }),
    ...(lifetime !== undefined && { lifetime: seconds(lifetime, "--lifetime") }),
    ...(metadata && { metadata: parsePairs(metadata, "--metadata") }),
  };
}

async function listSessions(
  tool: Tool,
  { status, number }: { status?: string; number: string },
): Promise<void> {
  const page = await tool.airlock.api.listSessions({
    ...(status !== undefined && { status: status as SessionStatus }),
    limit: parseCount(number),
  });
  showPage(tool, page, number, "no sessions", {
    ID: (item) => item.session_id,
    STATUS: (item) => (item.busy ? "busy" : item.status),
    CALLS: (item) => String(item.calls),
    AGE: (item) => age(item.created_at),
    USED: (item) => age(item.used_at),
    ...tenantColumn(tool),
    TYPE: (item) => item.job_type,
    REASON: ({ message, error, reason }) => message ?? error?.message ?? reason ?? "",
  });
}
