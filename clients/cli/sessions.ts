import { createInterface, type Interface } from "node:readline";
import type { Command } from "commander";
import { sessionStatuses } from "../../shared/wire/sessions.ts";
import type { CallRequest, OpenSession, SessionRequest } from "../typescript/src/index.ts";
import { exitCode, ExitError, interruptible, UsageError } from "./exit.ts";
import { readText } from "./files.ts";
import { exitCodeOfRecord, explainEnd, follow, submitAndFollow } from "./follow.ts";
import { pairs, submitFields, withCallOptions } from "./run.ts";
import { age, parseSeconds } from "./terminal.ts";
import {
  addCommand,
  type Declared,
  forEach,
  given,
  many,
  numberOption,
  show,
  showPage,
  tenantColumn,
  type Tool,
} from "./tool.ts";

/** Commands about sessions: interpreters that remember. */
export function addSessions(program: Command): void {
  withSessionOptions(
    addCommand(program, "repl", "an interactive Python in a session").argument(
      "[session]",
      "id of the session, or the end of the id; default: a new session, which ends with the command",
    ),
  ).does(async (tool, id, options) => {
    if (id !== undefined) return prompt(tool, await attachOpen(tool, id));
    await using session = await tool.airlock.sessions.create(sessionFields(options));
    return await prompt(tool, session);
  });

  const sessions = addCommand(program, "session", "interpreters that remember from call to call");
  const session = sessions.command;
  withSessionOptions(addCommand(session, "create", "start one; prints its id")).does(
    async (tool, options) => {
      // A key of the scope `run` alone could not read the session that it has made: this answer describes it.
      const sessionRequest = sessionFields(options);
      const state = await tool.airlock.api.createSession({ sessionRequest }, { timeoutMs: 90_000 });
      show(tool, state, state.session_id);
      if (state.message !== undefined && !tool.terminal.json) {
        tool.terminal.note(`waits: ${state.message}`, "dim");
      }
    },
  );

  addCommand(session, "list|ls", "list them, the newest first")
    .option("-s, --status <status>", "with this status", { choices: sessionStatuses })
    .option(...numberOption)
    .does(async (tool, { status, number }) => {
      const page = await tool.airlock.api.listSessions({ ...given({ status }), limit: number });
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
    });

  withCallOptions(
    addCommand(session, "run", "run a file in a session, with the variables it has")
      .argument("<session>", "id of the session, or the end of the id")
      .argument("<file>", "a file of Python, or - for standard input")
      .option("--stdin <file>", "what the code reads with input(), or - for this command's")
      .option("-f, --file <path>", "a file for its working folder: path or path=name", many)
      .option("--restart", "start its interpreter anew first"),
  ).does(async (tool, id, file, options) => {
    if (file === "-" && options.stdin === "-") {
      throw new UsageError("standard input can be the code or --stdin, not both");
    }
    const { files = [], ...fields } = await submitFields(tool, options);
    const call: CallRequest = {
      ...fields,
      ...(files.length > 0 && { files: files.map((one) => ({ ...one, to: "work" })) }),
      ...given({ restart: options.restart }),
      code: await readText(file),
    };
    const { submit } = tool.airlock.sessions.attach(id);
    return submitAndFollow(tool, options, (signal) => submit(call, { signal }));
  });

  addCommand(session, "end|rm", "end sessions, with their variables and files")
    .argument("<session...>", "their ids, or the ends of them")
    .does(
      forEach(
        ({ sessions }, id) => sessions.attach(id).close(),
        (_, id) => `${id} has ended`,
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

function withSessionOptions<Words extends unknown[], Options>(command: Declared<Words, Options>) {
  return command
    .option("-t, --job-type <name>", "job type")
    .option("-r, --require <package>", "a package to install first (repeatable)", many)
    .option(
      "--idle-timeout <duration>",
      "ends without a call for so long; default: 10m",
      parseSeconds,
    )
    .option(
      "--lifetime <duration>",
      "ends after so long, whatever it does; default: 1h",
      parseSeconds,
    )
    .option("-m, --metadata <name=value>", "your own words about it (repeatable)", pairs);
}

interface SessionOptions {
  jobType?: string;
  require?: string[];
  idleTimeout?: number;
  lifetime?: number;
  metadata?: Record<string, string>;
}

function sessionFields(options: SessionOptions): SessionRequest {
  const { jobType, require, idleTimeout, lifetime, metadata } = options;
  return given({
    job_type: jobType,
    requirements: require,
    idle_timeout: idleTimeout,
    lifetime,
    metadata,
  });
}

/** In a session, `exit()` would end nothing but its own cell. */
const leaves = /^(exit|quit) *(\( *\))?;? *$/;

/**
 * Reads Python from standard input and runs each statement in the session, as `python3` does at its prompt. Ctrl-C
 * interrupts what runs, or drops what was typed; Ctrl-D or `exit()` ends the command.
 *
 * @returns The exit code of the last statement.
 */
async function prompt(tool: Tool, session: OpenSession): Promise<number> {
  return interruptible(async (signal) => {
    const reader = createInterface({
      input: process.stdin,
      // What a program sends is not echoed.
      ...(process.stdin.isTTY && { output: process.stderr }),
    });
    let isRunning = false;
    /** Answers whether something runs. */
    const interrupt = (): boolean => {
      if (isRunning) session.interrupt().catch(() => {});
      return isRunning;
    };
    signal.addEventListener("abort", () => {
      reader.close();
      interrupt();
    });
    if (tool.terminal.watched) tool.terminal.note(`session ${session.id}`, "dim");
    let code = 0;
    for await (const statement of statementsOf(reader, interrupt)) {
      if (leaves.test(statement)) break;
      isRunning = true;
      code = await runCell(tool, session, statement);
      isRunning = false;
    }
    reader.close();
    return signal.aborted ? (signal.reason as ExitError).code : code;
  });
}

/** What is typed, statement by statement. */
async function* statementsOf(
  reader: Interface,
  onInterrupt: () => boolean,
): AsyncGenerator<string> {
  let lines: string[] = [];
  let isClosed = false;
  reader.once("close", () => (isClosed = true));
  const ask = (): void => {
    // Ctrl-D that is typed while code runs closes it: then it takes no prompt.
    if (!process.stdin.isTTY || isClosed) return;
    reader.setPrompt(lines.length === 0 ? ">>> " : "... ");
    reader.prompt();
  };
  reader.on("SIGINT", () => {
    if (onInterrupt()) return;
    lines = [];
    // Empties the line that is being typed.
    reader.write(null, { ctrl: true, name: "u" });
    process.stderr.write("\n");
    ask();
  });
  ask();
  for await (const line of reader) {
    lines.push(line);
    if (isComplete(lines)) {
      const statement = lines.join("\n");
      lines = [];
      if (statement.trim() !== "") yield statement;
    }
    ask();
  }
  if (lines.length > 0) yield lines.join("\n");
}

async function runCell(tool: Tool, session: OpenSession, code: string): Promise<number> {
  let record = await follow(tool, (await session.submit(code)).job_id);
  if (record.error?.type === "interpreter_ended") {
    tool.terminal.note("airlock: the interpreter has ended, with its variables: it starts anew");
    record = await follow(tool, (await session.submit({ code, restart: true })).job_id);
  }
  // A traceback has told of what the code raised, and of Ctrl-C.
  const isTold = record.exit_code === 1 || record.status === "cancelled";
  const end = isTold ? undefined : explainEnd(record);
  if (end !== undefined) tool.terminal.note(`airlock: ${end}`);
  return exitCodeOfRecord(record);
}

/** Strings, comments and brackets of Python; a string that does not end is open. */
const tokens =
  /(?<string>("""|'''|"|')(?:\\[^]|(?!\2)[^])*(?<end>\2)?)|(?<comment>#.*)|(?<open>[([{])|(?<close>[)\]}])/g;

/**
 * Whether lines of Python can be run, as a prompt decides it: no bracket or string is open, and a block (an
 * indented line, or one that ends with a colon) is ended by an empty line.
 */
export function isComplete(lines: readonly string[]): boolean {
  const text = lines.join("\n");
  let depth = 0;
  /** The text outside brackets, without strings and comments. */
  let bare = "";
  let from = 0;
  for (const match of text.matchAll(tokens)) {
    const { string, end, open, close } = match.groups!;
    if (depth === 0) bare += text.slice(from, match.index);
    from = match.index + match[0].length;
    if (string !== undefined) {
      const isLong = /^("""|''')/.test(string);
      if (end === undefined && isLong) return false;
      bare += "s";
    }
    if (open !== undefined) depth++;
    if (close !== undefined) depth = Math.max(0, depth - 1);
  }
  bare += text.slice(from);
  if (depth > 0 || bare.endsWith("\\")) return false;
  const isBlock = /:[ \t]*$/m.test(bare) || /^@/m.test(bare);
  return !isBlock || lines.at(-1)!.trim() === "";
}
