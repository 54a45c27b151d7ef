import { rowStarts } from "./cells.ts";
import { type Look, type Piece, parseAnsi, stripAnsi } from "./ansi.ts";

export type Stream = "stdout" | "stderr";

interface Line {
  stream: Stream;
  raw: string;
  /** What is seen of it. */
  text: string;
  start: Look;
  /** When its first piece came, in ms since 1970; undefined for output that was not watched. */
  at: number | undefined;
}

/** One row on the screen: a line, or a part of one that is too long. */
export interface Row {
  stream: Stream;
  line: number;
  isContinued: boolean;
  pieces: Piece[];
  at: number | undefined;
}

const encoder = new TextEncoder();

/** Characters that are kept of a line that is written again and again, as a progress bar is. */
const mostRewritten = 16_384;

function shortened(raw: string): string {
  if (raw.length <= mostRewritten || !raw.includes("\r")) return raw;
  const from = raw.indexOf("\r", raw.length - mostRewritten / 2);
  return from === -1 ? raw : raw.slice(from + 1);
}

/** Output as it arrives, in lines; rows are made for those that are seen. It may be large. */
export class Output {
  readonly #lines: Line[] = [];
  readonly #ends: Record<Stream, Look> = { stdout: {}, stderr: {} };
  /** Index of each stream's last line while that has no line feed yet. */
  readonly #open: Partial<Record<Stream, number>> = {};
  /** Row at which each line begins, for `#columns`; only as far as it has been asked for. */
  #starts: number[] = [0];
  #columns = 0;
  bytes = 0;

  get lineCount(): number {
    return this.#lines.length;
  }

  /** All of it as it is seen, for the clipboard. */
  get text(): string {
    const last = this.#lines.length - 1;
    const isOpen = Object.values(this.#open).includes(last);
    return this.#lines.map(({ text }, i) => (i === last && isOpen ? text : `${text}\n`)).join("");
  }

  /** Whether it is known when each line was written. */
  get hasTimes(): boolean {
    return this.#lines[0]?.at !== undefined;
  }

  append(stream: Stream, text: string, at?: number): void {
    if (text === "") return;
    this.bytes += encoder.encode(text).length;
    const open = this.#open[stream];
    let from = 0;
    if (open !== undefined) {
      const feed = text.indexOf("\n");
      const head = feed === -1 ? text : text.slice(0, feed);
      this.#set(open, stream, shortened(this.#lines[open]!.raw + head), at);
      if (feed === -1) return;
      this.#close(stream, open);
      from = feed + 1;
    }
    while (from < text.length) {
      const feed = text.indexOf("\n", from);
      const index = this.#lines.length;
      this.#set(index, stream, text.slice(from, feed === -1 ? undefined : feed), at);
      if (feed === -1) {
        this.#open[stream] = index;
        return;
      }
      this.#close(stream, index);
      from = feed + 1;
    }
  }

  #set(index: number, stream: Stream, raw: string, now: number | undefined): void {
    const { start = this.#ends[stream], at = now } = this.#lines[index] ?? {};
    this.#lines[index] = { stream, raw, text: stripAnsi(raw), start, at };
    if (this.#starts.length > index + 1) this.#starts.length = index + 1;
  }

  #close(stream: Stream, index: number): void {
    const { raw, start } = this.#lines[index]!;
    delete this.#open[stream];
    if (raw.includes("\x1b")) this.#ends[stream] = parseAnsi(raw, start).end;
  }

  /** How many rows it has on a screen of this width in characters. */
  rowCount(columns: number): number {
    if (columns !== this.#columns) {
      this.#columns = columns;
      this.#starts = [0];
    }
    for (let i = this.#starts.length - 1; i < this.#lines.length; i++) {
      this.#starts.push(this.#starts[i]! + rowStarts(this.#lines[i]!.text, columns).length);
    }
    return this.#starts[this.#lines.length]!;
  }

  rows(from: number, count: number, columns: number): Row[] {
    const total = this.rowCount(columns);
    const found: Row[] = [];
    let line = this.#lineAt(Math.max(0, from));
    let part = Math.max(0, from) - (this.#starts[line] ?? 0);
    while (found.length < count && (this.#starts[line] ?? total) < total) {
      const { stream, raw, text, start, at } = this.#lines[line]!;
      const starts = rowStarts(text, columns);
      const { pieces } = parseAnsi(raw, start);
      for (; part < starts.length && found.length < count; part++) {
        const own = slicePieces(pieces, starts[part]!, starts[part + 1] ?? text.length);
        found.push({ stream, line, isContinued: part > 0, pieces: own, at });
      }
      line += 1;
      part = 0;
    }
    return found;
  }

  #lineAt(row: number): number {
    let low = 0;
    let high = this.#lines.length;
    while (low + 1 < high) {
      const middle = (low + high) >> 1;
      if (this.#starts[middle]! <= row) low = middle;
      else high = middle;
    }
    return low;
  }

  /** The row at which a line begins, from 0; undefined while it is not there. */
  rowOf(line: number, columns: number): number | undefined {
    this.rowCount(columns);
    return line < this.#lines.length ? this.#starts[line] : undefined;
  }

  /** The rows in which a text is found, without regard to case. */
  find(wanted: string, columns: number): number[] {
    this.rowCount(columns);
    const needle = wanted.toLowerCase();
    const found: number[] = [];
    if (needle === "") return found;
    for (const [i, { text }] of this.#lines.entries()) {
      const hay = text.toLowerCase();
      let at = hay.indexOf(needle);
      if (at === -1) continue;
      const starts = rowStarts(text, columns);
      for (let row = 0; at !== -1; at = hay.indexOf(needle, at + needle.length)) {
        while (starts[row + 1]! <= at) row += 1;
        found.push(this.#starts[i]! + row);
      }
    }
    return found;
  }
}

function slicePieces(pieces: Piece[], from: number, to: number): Piece[] {
  const found: Piece[] = [];
  let at = 0;
  for (const { text, look } of pieces) {
    const part = text.slice(Math.max(0, from - at), Math.max(0, to - at));
    if (part !== "") found.push({ text: part, look });
    at += text.length;
    if (at >= to) break;
  }
  return found;
}
