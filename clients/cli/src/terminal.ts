import { styleText } from "node:util";

/** What a command writes to, and how. */
export interface Terminal {
  /** Whether the answer is one JSON document instead of text for people. */
  readonly json: boolean;
  /** Whether a person watches the messages. */
  readonly watched: boolean;
  /** Writes a line of the answer. */
  line(text: string): void;
  /** Writes bytes of the answer as they are; resolves once the reader has room for more. */
  write(bytes: string | Uint8Array): Promise<void>;
  /** The same to stderr. */
  writeError(bytes: string | Uint8Array): Promise<void>;
  /** Writes a line about the answer, to stderr. */
  note(text: string, format?: Format): void;
  /** Writes a JSON document. */
  document(value: unknown): void;
  /** Writes rows under a heading, within the width of the terminal. */
  table(columns: readonly Column[], rows: readonly (readonly string[])[]): void;
  readonly style: Style;
}

export interface Column {
  readonly title: string;
  readonly right?: boolean;
  readonly colored?: boolean;
}

type Format = "bold" | "dim" | "red" | "green" | "yellow" | "cyan";
type Style = (format: Format, text: string) => string;

export function openTerminal(json: boolean): Terminal {
  const { stdout, stderr } = process;
  const style: Style = (format, text) => styleText(format, text, { stream: stdout });
  const line = (text: string): void => void stdout.write(`${text}\n`);
  return {
    json,
    watched: stderr.isTTY,
    line,
    write: (bytes) => writeTo(stdout, bytes),
    writeError: (bytes) => writeTo(stderr, bytes),
    note: (text, format) => {
      const shown = format === undefined ? text : styleText(format, text, { stream: stderr });
      stderr.write(`${shown}\n`);
    },
    document: (value) => line(JSON.stringify(value, null, 2)),
    table: (columns, rows) => {
      for (const text of layOut(columns, rows, stdout.isTTY ? stdout.columns : undefined, style)) {
        line(text);
      }
    },
    style,
  };
}

async function writeTo(stream: NodeJS.WriteStream, bytes: string | Uint8Array): Promise<void> {
  // It is called after a failure too: `endWithItsReader` treats those of both streams.
  await new Promise<void>((resolve) => void stream.write(bytes, () => resolve()));
}

/** The least width of the last column, so that it stays useful. */
const least = 6;
const indent = "  ";

/**
 * Lines of a table. If the terminal is too narrow, the last column is cut; if that is not enough, each row takes several
 * lines. An id is never cut or wrapped, so that it can be copied.
 */
export function layOut(
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
  width: number | undefined,
  style: Style,
): string[] {
  const widths = columns.map(({ title }, at) =>
    Math.max(title.length, ...rows.map((row) => plain(row[at] ?? "").length)),
  );
  const last = widths.length - 1;
  const lines: number[][] = [[]];
  let used = 0;
  for (const [at, own] of widths.entries()) {
    const needed = at === last ? Math.min(own, least) : own;
    if (at > 0 && used + 2 + needed > (width ?? Infinity)) {
      lines.push([]);
      used = 0;
    }
    if (at === last) widths[at] = Math.min(own, Math.max(4, (width ?? Infinity) - used - 2));
    lines.at(-1)!.push(at);
    used += (at === 0 ? 0 : 2) + own;
  }
  const lay = (row: readonly string[], isTitle: boolean) => (line: readonly number[], at: number) =>
    `${at > 0 ? indent : ""}${line
      .map((cell) => layCell(row, cell, isTitle))
      .join("  ")
      .trimEnd()}`;
  const layCell = (row: readonly string[], at: number, isTitle: boolean): string => {
    const { right = false, colored = false } = columns[at]!;
    const text = cut(plain(row[at] ?? ""), widths[at]!);
    const space = " ".repeat(widths[at]! - text.length);
    const shown = colored && !isTitle ? colorOf(text, style) : text;
    return right ? space + shown : shown + (at === last ? "" : space);
  };
  const titles = columns.map(({ title }) => title);
  return [
    ...lines.map(lay(titles, true)).map((line) => style("dim", line)),
    ...rows.flatMap((row) => lines.map(lay(row, false))),
  ];
}

/** Untrusted text must not move the cursor or fake lines. */
export function plain(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, " ");
}

function cut(text: string, width: number): string {
  return text.length <= width ? text : `${text.slice(0, width - 1)}…`;
}

const good = new Set(["succeeded", "idle", "working", "built", "closed", "healthy", "delivered"]);
const bad = new Set([
  "failed",
  "timeout",
  "oom",
  "unwell",
  "silent",
  "open",
  "degraded",
  "revoked",
]);

/** A state in its colour; the word says the same. */
export function colorOf(state: string, style: Style): string {
  if (good.has(state)) return style("green", state);
  if (bad.has(state)) return style("red", state);
  return style("yellow", state);
}
