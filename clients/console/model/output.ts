import type { Piece } from "./ansi.ts";
import { rowStarts } from "./cells.ts";
import { Line } from "./line.ts";
import { Terminal } from "./terminal.ts";

export type Stream = "stdout" | "stderr";

/** A line by its number in its stream, from 1. Read from the record, the lines of both streams come in another order. */
export interface Place {
  stream: Stream;
  number: number;
}

interface Placed extends Place {
  line: Line;
  /** When its first piece came, in ms since 1970; undefined for output that was not watched. */
  at: number | undefined;
}

/** One row on the screen: a line, or a part of one that is too long. */
export interface Row extends Place {
  isContinued: boolean;
  pieces: Piece[];
  at: number | undefined;
}

const encoder = new TextEncoder();

/** Output as it arrives, in lines; rows are made for those that are seen. It may be large. */
export class Output {
  readonly #lines: Placed[] = [];
  /** The index of each stream's lines among all lines. */
  readonly #places: Record<Stream, number[]> = { stdout: [], stderr: [] };
  readonly #terminals = { stdout: this.#terminal("stdout"), stderr: this.#terminal("stderr") };
  /** Row at which each line begins, for `#columns`; only as far as it has been asked for. */
  #starts: number[] = [0];
  #columns = 0;
  #now: number | undefined;
  bytes = 0;
  /** All output as it was written. */
  raw = "";

  #terminal(stream: Stream): Terminal {
    const places = this.#places[stream];
    return new Terminal(
      () => {
        const line = new Line();
        places.push(this.#lines.length);
        this.#lines.push({ stream, number: places.length, line, at: this.#now });
        return line;
      },
      (row) => {
        this.#starts.length = Math.min(this.#starts.length, places[row]! + 1);
      },
    );
  }

  get lineCount(): number {
    return this.#lines.length;
  }

  /** All of it as it is seen, for the clipboard. */
  get text(): string {
    const text = this.#lines.map(({ line }) => line.text).join("\n");
    const last = this.#lines.at(-1);
    return last && !this.#terminals[last.stream].isOpen ? `${text}\n` : text;
  }

  /** Whether it is known when each line was written. */
  get hasTimes(): boolean {
    return this.#lines[0]?.at !== undefined;
  }

  append(stream: Stream, text: string, at?: number): void {
    this.bytes += encoder.encode(text).length;
    this.raw += text;
    this.#now = at;
    this.#terminals[stream].write(text);
  }

  /** How many rows it has on a screen of this width in characters. */
  rowCount(columns: number): number {
    if (columns !== this.#columns) {
      this.#columns = columns;
      this.#starts = [0];
    }
    for (let i = this.#starts.length - 1; i < this.#lines.length; i++) {
      const { line } = this.#lines[i]!;
      const rows = line.width <= columns ? 1 : rowStarts(line.text, columns).length;
      this.#starts.push(this.#starts[i]! + rows);
    }
    return this.#starts[this.#lines.length]!;
  }

  rows(from: number, count: number, columns: number): Row[] {
    const total = this.rowCount(columns);
    const found: Row[] = [];
    let line = this.#lineAt(Math.max(0, from));
    let part = Math.max(0, from) - (this.#starts[line] ?? 0);
    while (found.length < count && (this.#starts[line] ?? total) < total) {
      const { line: shown, ...place } = this.#lines[line]!;
      const { pieces, text } = shown;
      const starts = rowStarts(text, columns);
      for (; part < starts.length && found.length < count; part++) {
        const own = slicePieces(pieces, starts[part]!, starts[part + 1] ?? text.length);
        found.push({ ...place, isContinued: part > 0, pieces: own });
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
  rowOf({ stream, number }: Place, columns: number): number | undefined {
    this.rowCount(columns);
    return this.#starts[this.#places[stream][number - 1] ?? -1];
  }

  /** The rows in which a text is found, without regard to case. */
  find(wanted: string, columns: number): number[] {
    this.rowCount(columns);
    const needle = wanted.toLowerCase();
    const found: number[] = [];
    if (needle === "") return found;
    for (const [i, { line }] of this.#lines.entries()) {
      const { text } = line;
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

function slicePieces(pieces: readonly Piece[], from: number, to: number): Piece[] {
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
