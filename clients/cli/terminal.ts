import { styleText } from "node:util";
import { UsageError } from "./exit.ts";

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

interface Column {
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

/** Times and sizes: formatting them, and parsing what users type. */

/** 340 ms, 4.2 s, 3 min, 5 h, 12 d. */
export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return "-";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 100_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 2 * 3_600_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 2 * 86_400_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}

/** How long ago a time of the service was. */
export function age(time: string | null | undefined, now = Date.now()): string {
  return time ? duration(Math.max(0, now - Date.parse(time))) : "-";
}

/** Time from one moment to another; to now if there is no second one. */
export function between(from: string | null, to: string | null, now = Date.now()): string {
  if (from === null) return "-";
  return duration((to === null ? now : Date.parse(to)) - Date.parse(from));
}

export function bytes(count: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let [value, at] = [count, 0];
  while (value >= 1000 && at < units.length - 1) [value, at] = [value / 1000, at + 1];
  return `${at === 0 ? value : value.toFixed(1)} ${units[at]}`;
}

/** "250", "500MB", "10 GiB", "10g": as `bytes` writes them, in binary units, and as in the configuration. */
export function parseBytes(text: string, option: string): number {
  const [, count = "", unit = "", i = "", b = ""] =
    /^(\d+(?:\.\d+)?) ?([KMGT]?)(i?)(B?)$/i.exec(text) ?? [];
  const base = b !== "" && i === "" ? 1000 : 1024;
  const size = Math.round(Number(count) * base ** " KMGT".indexOf(unit.toUpperCase() || " "));
  if (count !== "" && Number.isSafeInteger(size)) return size;
  throw new UsageError(`${option} "${text}" must be a number of bytes, or such as 500MB or 10g`);
}

const unitMs: Record<string, number> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** "10m", "2h", "1d" as milliseconds. */
export function parseDuration(text: string, option: string): number {
  const [, count = "", unit = ""] = /^(\d+(?:\.\d+)?)([smhd])$/.exec(text) ?? [];
  const ms = Number(count) * (unitMs[unit] ?? Number.NaN);
  if (ms > 0) return ms;
  throw new UsageError(`${option} "${text}" must be a duration, such as 30s, 10m, 2h or 1d`);
}

/** The same as whole seconds. */
export const parseSeconds = (text: string, option: string): number =>
  Math.round(parseDuration(text, option) / 1000);

/** A time of day or a duration before now, as epoch ms. */
export function parseSince(text: string, now = Date.now()): number {
  const time = Date.parse(text);
  return /^\d{4}-/.test(text) && !Number.isNaN(time) ? time : now - parseDuration(text, "--since");
}

export function parseNumber(text: string, option: string): number {
  const value = Number(text);
  if (Number.isFinite(value) && text.trim() !== "") return value;
  throw new UsageError(`${option} "${text}" must be a number`);
}

/** Most items in one answer of the service. */
const mostItems = 1000;

/** The value of `-n`. */
export function parseCount(text: string): number {
  const count = Number(text);
  if (Number.isInteger(count) && count >= 1 && count <= mostItems) return count;
  throw new UsageError(`--number "${text}" must be a whole number from 1 to ${mostItems}`);
}

/** What a list says whose end is not shown. */
export function moreThan(shown: number): string {
  const count = Math.min(shown * 2, mostItems);
  return count > shown ? `there are more: -n ${count}` : "there are more: filter the list";
}

/** `name=value` pairs. */
export function parsePairs(pairs: readonly string[], option: string): Record<string, string> {
  return Object.fromEntries(
    pairs.map((pair) => {
      const at = pair.indexOf("=");
      if (at < 1) throw new UsageError(`${option} "${pair}" must be name=value`);
      return [pair.slice(0, at), pair.slice(at + 1)];
    }),
  );
}
