import { createInterface, type Interface } from "node:readline";
import type { OpenSession } from "../../../typescript/src/index.ts";
import type { ExitError } from "../exit.ts";
import { interruptible } from "../interrupt.ts";
import { explainEnd, exitCodeOfRecord, follow } from "../jobs/follow.ts";
import type { Tool } from "../tool.ts";
import { isComplete } from "./is-complete.ts";

/** In a session, `exit()` would end nothing but its own cell. */
const leaves = /^(exit|quit) *(\( *\))?;? *$/;

/**
 * Reads Python from standard input and runs each statement in the session, as `python3` does at its prompt. Ctrl-C
 * interrupts what runs, or drops what was typed; Ctrl-D or `exit()` ends the command.
 *
 * @returns The exit code of the last statement.
 */
export async function prompt(tool: Tool, session: OpenSession): Promise<number> {
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
