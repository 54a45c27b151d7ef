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

/** Text, control sequences (CSI, OSC, other escapes), and single control characters. */
const tokens =
  // oxlint-disable-next-line no-control-regex -- it looks for control characters
  /[^\x00-\x1f\x7f]+|\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|[^]/g;
/** The beginning of a sequence at the end of a piece. */
// oxlint-disable-next-line no-control-regex -- it looks for control characters
const unfinished = /\x1b(?:\[[0-?]{0,64}[ -/]*|\][^\x07\x1b]{0,256})?$/;
/** No control sequence makes a line longer than this. */
const mostColumns = 4096;

/**
 * What one stream writes, in lines, as a terminal of unlimited height shows it: progress bars write over their lines.
 * Source: ECMA-48, the functions CUU to CPL, ED, EL and SGR.
 */
class Terminal {
  readonly #lines: Line[] = [];
  readonly #add: () => Line;
  readonly #touch: (row: number) => void;
  #row = 0;
  #column = 0;
  #look: Look = plain;
  #held = "";

  /**
   * @param add Adds a line at the end.
   * @param touch Is called before a line changes.
   */
  constructor(add: () => Line, touch: (row: number) => void) {
    this.#add = add;
    this.#touch = touch;
  }

  /** Whether the last line is not ended yet. */
  get isOpen(): boolean {
    return this.#row < this.#lines.length;
  }

  write(piece: string): void {
    const text = this.#held + piece;
    this.#held = unfinished.exec(text)?.[0] ?? "";
    const whole = text.slice(0, text.length - this.#held.length);
    for (const [token, parameters = "", final] of whole.matchAll(tokens)) {
      if (final !== undefined) this.#control(final, parameters);
      else if (token >= " " && token !== "\x7f") {
        this.#column = this.#line().write(this.#column, token, this.#look);
      } else if (token === "\n") {
        this.#line();
        this.#row += 1;
        this.#column = 0;
      } else if (token === "\r") this.#column = 0;
      else if (token === "\b") this.#column = Math.max(0, this.#column - 1);
      else if (token === "\t") this.#column += 8 - (this.#column % 8);
    }
  }

  #line(): Line {
    if (this.#row === this.#lines.length) this.#lines.push(this.#add());
    this.#touch(this.#row);
    return this.#lines[this.#row]!;
  }

  #control(final: string, parameters: string): void {
    const n = Number(parameters) || 0;
    const steps = Math.min(mostColumns, n || 1);
    if (final === "m") this.#look = nextLook(this.#look, parameters);
    else if (final === "A" || final === "F") this.#row = Math.max(0, this.#row - steps);
    else if (final === "B" || final === "E")
      this.#row = Math.min(this.#lines.length, this.#row + steps);
    else if (final === "C") this.#column = Math.min(mostColumns, this.#column + steps);
    else if (final === "D") this.#column = Math.max(0, this.#column - steps);
    else if (final === "G") this.#column = steps - 1;
    else if (final === "J" || final === "K") this.#erase(final, n);
    if (final === "E" || final === "F") this.#column = 0;
  }

  /** The end of the line, its beginning, or all of it; `J` also what is below. */
  #erase(final: string, which: number): void {
    const last = final === "J" && which !== 1 ? this.#lines.length - 1 : this.#row;
    for (let row = this.#row; row <= last && row < this.#lines.length; row++) {
      this.#touch(row);
      if (row > this.#row || which > 1) this.#lines[row]!.cut(0);
      else if (which === 0) this.#lines[row]!.cut(this.#column);
      else this.#lines[row]!.blank(this.#column + 1);
    }
  }
}

interface Run extends Piece {
  width: number;
  /** Each character takes one cell. */
  isPlain: boolean;
}

/** Longer runs are not joined: a text that is both extended and cut is copied each time. */
const mostMerged = 4096;

/** One line of a terminal: text in runs of one look. Columns are cells, from 0. */
class Line {
  #runs: Run[] = [];
  #width = 0;

  get pieces(): readonly Piece[] {
    return this.#runs;
  }

  get width(): number {
    return this.#width;
  }

  get text(): string {
    return this.#runs.map(({ text }) => text).join("");
  }

  /** Writes from a column on, over what is there, and returns the column after it. */
  write(from: number, text: string, look: Look): number {
    const width = widthOf(text);
    if (from > this.#width) this.write(this.#width, " ".repeat(from - this.#width), plain);
    const after = from < this.#width ? this.#part(from + width, Infinity) : [];
    this.cut(from);
    for (const run of [{ text, look, width, isPlain: isPlain(text) }, ...after]) this.#push(run);
    return from + width;
  }

  /** Removes everything from a column on. */
  cut(column: number): void {
    if (column >= this.#width) return;
    this.#runs = this.#part(0, column);
    this.#width = column;
  }

  /** Writes spaces up to a column. */
  blank(to: number): void {
    this.write(0, " ".repeat(Math.min(to, this.#width)), plain);
  }

  #push(run: Run): void {
    this.#width += run.width;
    const last = this.#runs.at(-1);
    if (last?.look !== run.look || last.text.length > mostMerged) {
      this.#runs.push({ ...run });
      return;
    }
    last.text += run.text;
    last.width += run.width;
    last.isPlain &&= run.isPlain;
  }

  #part(from: number, to: number): Run[] {
    const found: Run[] = [];
    let at = 0;
    for (const run of this.#runs) {
      const end = at + run.width;
      if (end > from && at < to) found.push(slice(run, from - at, to - at));
      at = end;
    }
    return found;
  }
}

/** The part between two columns. A character that is cut in two becomes spaces. */
function slice(run: Run, from: number, to: number): Run {
  if (from <= 0 && to >= run.width) return run;
  let text = "";
  if (run.isPlain) text = run.text.slice(Math.max(0, from), to);
  else {
    let column = 0;
    let isIn = false;
    for (const character of run.text) {
      const width = cellsOf(character);
      if (width > 0) isIn = column >= from && column + width <= to;
      if (isIn) text += character;
      else if (column + width > from && column < to) text += " ";
      column += width;
    }
  }
  return { ...run, text, width: widthOf(text) };
}

/** Text in the cells of a terminal: most characters take one, those of East Asia and emoji two, marks none. */
const wide =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u;
const without = /[\p{M}\u200b-\u200f\u202a-\u202e\u2060-\u2069]/u;
// oxlint-disable-next-line no-control-regex -- control characters take one cell too
const inSingleCells = /^[\x00-\u02ff]*$/;

/** Whether each character takes one cell. */
const isPlain = (text: string): boolean => inSingleCells.test(text);

const cellsOf = (character: string): number =>
  wide.test(character) ? 2 : without.test(character) ? 0 : 1;

/** Where the rows of a text begin, on a screen of this width; the first is 0. */
function rowStarts(text: string, columns: number): number[] {
  const starts = [0];
  if (isPlain(text)) {
    for (let at = columns; at < text.length; at += columns) starts.push(at);
    return starts;
  }
  let used = 0;
  let at = 0;
  for (const character of text) {
    const cells = cellsOf(character);
    if (used + cells > columns) {
      starts.push(at);
      used = 0;
    }
    used += cells;
    at += character.length;
  }
  return starts;
}

function widthOf(text: string): number {
  if (isPlain(text)) return text.length;
  let width = 0;
  for (const character of text) width += cellsOf(character);
  return width;
}

/** How a piece of terminal output looks. Colours are numbers 0 to 15, or "#rrggbb". */
export interface Look {
  fg?: number | string | undefined;
  bg?: number | string | undefined;
  bold?: boolean;
  faint?: boolean;
  italic?: boolean;
  underline?: boolean;
  inverse?: boolean;
}
export interface Piece {
  text: string;
  look: Look;
}

const plain: Look = {};

const changes: Record<number, Look> = {
  1: { bold: true },
  2: { faint: true },
  3: { italic: true },
  4: { underline: true },
  7: { inverse: true },
  22: { bold: false, faint: false },
  23: { italic: false },
  24: { underline: false },
  27: { inverse: false },
  39: { fg: undefined },
  49: { bg: undefined },
};

/** The look of text after an SGR sequence with these parameters. */
function nextLook(before: Look, parameters: string): Look {
  const codes = parameters.split(/[;:]/).map(Number);
  let look = before;
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i]!;
    if (code === 0) look = plain;
    else if (code >= 30 && code <= 37) look = { ...look, fg: code - 30 };
    else if (code >= 90 && code <= 97) look = { ...look, fg: code - 82 };
    else if (code >= 40 && code <= 47) look = { ...look, bg: code - 40 };
    else if (code >= 100 && code <= 107) look = { ...look, bg: code - 92 };
    else if (code === 38 || code === 48) {
      const { colour, used } = extended(codes.slice(i + 1));
      i += used;
      if (colour !== undefined) look = { ...look, [code === 38 ? "fg" : "bg"]: colour };
    } else look = { ...look, ...changes[code] };
  }
  return look;
}

function extended(codes: number[]): { colour?: number | string; used: number } {
  const [mode, a = 0, b = 0, c = 0] = codes;
  if (mode === 2) return { colour: rgb(a, b, c), used: 4 };
  if (mode !== 5) return { used: 0 };
  if (a < 16) return { colour: a, used: 2 };
  const grey = 8 + (a - 232) * 10;
  if (a >= 232) return { colour: rgb(grey, grey, grey), used: 2 };
  const levels = [(a - 16) / 36, ((a - 16) / 6) % 6, (a - 16) % 6].map(Math.floor);
  return { colour: rgb(...levels.map((n) => (n === 0 ? 0 : 55 + n * 40))), used: 2 };
}

const rgb = (...parts: number[]): string =>
  `#${parts.map((n) => Math.min(255, n).toString(16).padStart(2, "0")).join("")}`;
