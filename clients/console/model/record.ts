import type { ExecutionRecord } from "../../typescript/src/generated.ts";
import { joinArguments } from "./submission.ts";

/** The part of a record that says how long it waited and ran. `started_at` is when the last attempt began. */
export type Timed = Pick<ExecutionRecord, "created_at" | "started_at" | "ended_at"> & {
  attempts?: Pick<Attempt, "attempt" | "claimed_at" | "ended_at">[] | undefined;
};
type Attempt = NonNullable<ExecutionRecord["attempts"]>[number];

/** What the timeline also needs. */
type Detailed = Timed & {
  timing: Omit<NonNullable<ExecutionRecord["timing"]>, "phase_at_exit"> | null;
};

interface Phase {
  name: string;
  startMs: number;
  durationMs: number;
}

/** How long the job waited for an agent, without lost attempts, and how long its last attempt ran. */
export function timesOf(record: Timed, now: number): { waited: number; ran: number | undefined } {
  const { created_at, started_at, ended_at } = record;
  const ended = ended_at === null ? now : Date.parse(ended_at);
  const started = started_at === null ? undefined : Date.parse(started_at);
  const lostMs = lostOf(record).reduce((sum, { from, to }) => sum + to - from, 0);
  return {
    waited: Math.max(0, (started ?? ended) - Date.parse(created_at) - lostMs),
    ran: started === undefined ? undefined : Math.max(0, ended - started),
  };
}

/** The attempts before the last one; all of them while the job waits again. */
const lostOf = ({ started_at, attempts = [] }: Timed) =>
  attempts.flatMap(({ attempt, claimed_at, ended_at }) =>
    claimed_at === started_at || ended_at === null
      ? []
      : [{ name: `Attempt ${attempt}`, from: Date.parse(claimed_at), to: Date.parse(ended_at) }],
  );

/** What an execution spent its time with, from its submission. */
export function phasesOf(record: Detailed, now: number): Phase[] {
  const { created_at, started_at, ended_at, timing } = record;
  const created = Date.parse(created_at);
  const ended = ended_at === null ? now : Date.parse(ended_at);
  const started = started_at === null ? ended : Date.parse(started_at);
  let waitsFrom = created;
  const phases: Phase[] = [];
  const waitUntil = (to: number): void => {
    phases.push({ name: "Waited", startMs: waitsFrom - created, durationMs: to - waitsFrom });
  };
  for (const { name, from, to } of lostOf(record)) {
    waitUntil(from);
    phases.push({ name, startMs: from - created, durationMs: to - from });
    waitsFrom = to;
  }
  waitUntil(started);
  if (started_at === null) return phases;
  if (!timing) {
    return [
      ...phases,
      {
        name: ended_at === null ? "Running" : "Ran",
        startMs: started - created,
        durationMs: ended - started,
      },
    ];
  }
  const { startup_ms, dep_install_ms, execution_ms, total_ms } = timing;
  let at = started - created;
  const parts: [string, number][] = [
    ["Start-up", startup_ms - dep_install_ms],
    ["Packages", dep_install_ms],
    ["Code", execution_ms],
    ["Files", total_ms - startup_ms - execution_ms],
  ];
  for (const [name, durationMs] of parts) {
    if (durationMs <= 0 && name !== "Code") continue;
    phases.push({ name, startMs: at, durationMs: Math.max(0, durationMs) });
    at += Math.max(0, durationMs);
  }
  return phases;
}

type Failure = Pick<
  ExecutionRecord,
  "status" | "exit_code" | "error" | "language" | "command" | "compile" | "stdout" | "stderr"
> & { code: string; input: string };

const tailLength = 4000;

/** A failed execution as a question to a language model. */
export function failurePrompt(failure: Failure): string {
  const { status, exit_code, error, code, input, stdout, stderr, command, compile } = failure;
  const how = exit_code === null ? status : `${status}, exit code ${exit_code}`;
  const language = command ? "" : (failure.language ?? "python");
  const isPython = language === "python";
  const what = command
    ? `program, run as ${joinArguments(command)},`
    : `${isPython ? "Python" : language} program`;
  const said = compile ? compile.stdout + compile.stderr : "";
  const parts = [
    `This ${what} ended ${how}${error ? ` with ${error.type} in the phase ${error.phase}: ${error.message}` : ""}.`,
    "It ran in an isolated container without network. It reads its input from /input/data.json and writes files to /output. Find the cause and give the corrected program.",
    block(`The program${isPython ? ", /code/main.py" : ""}`, language, code),
    input.trim() === "{}" ? "" : block("The input, /input/data.json", "json", tail(input)),
    said === "" ? "" : block("What the compiler wrote", "", said),
    stderr === "" ? "" : block("What it wrote to stderr", "", tail(stderr)),
    stdout === "" ? "" : block("What it wrote to stdout", "", tail(stdout)),
  ];
  return `${parts.filter((part) => part !== "").join("\n\n")}\n`;
}

function block(title: string, language: string, text: string): string {
  return `${title}:\n\n\`\`\`${language}\n${text.replace(/\n$/, "")}\n\`\`\``;
}

function tail(text: string): string {
  return text.length <= tailLength ? text : `[…]\n${text.slice(-tailLength)}`;
}

/**
 * The innermost line of the submitted code that the last traceback names, from 1. The outermost frame is in this code;
 * others may be in cells that ran before it.
 */
export function errorLine(stderr: string): number | undefined {
  const trace = stderr.slice(-65_536).split("Traceback (most recent call last):").at(-1)!;
  const frames = [...trace.matchAll(/File "(\/code\/main\.py|<cell \d+>)", line (\d+)/g)];
  const own = frames.findLast(([, file]) => file === frames[0]?.[1]);
  return own && Number(own[2]);
}

/** The first rows of a CSV file (RFC 4180, also with ; or tab between fields). */
export function parseCsv(text: string, maxRows: number): string[][] {
  const separator = separatorOf(text);
  const rows: string[][] = [];
  let row: string[] = [];
  let field = "";
  let isQuoted = false;
  for (let i = 0; i <= text.length; i++) {
    const char = text[i] ?? "\n";
    if (isQuoted) {
      if (i === text.length) isQuoted = false;
      else if (char !== '"') field += char;
      else if (text[i + 1] === '"') field += text[++i];
      else isQuoted = false;
      if (i < text.length) continue;
    }
    if (char === '"' && field === "") isQuoted = true;
    else if (char === separator) {
      row.push(field);
      field = "";
    } else if (char === "\n") {
      row.push(field.endsWith("\r") ? field.slice(0, -1) : field);
      if (row.length > 1 || row[0] !== "") rows.push(row);
      if (rows.length >= maxRows) return rows;
      row = [];
      field = "";
    } else field += char;
  }
  return rows;
}

function separatorOf(text: string): string {
  const [head = ""] = text.split("\n", 1);
  const counted = [",", ";", "\t"].map((mark) => ({ mark, n: head.split(mark).length }));
  return counted.toSorted((a, b) => b.n - a.n)[0]!.mark;
}
