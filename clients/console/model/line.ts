import { type Look, type Piece, plain } from "./ansi.ts";
import { cellsOf, isPlain, widthOf } from "./cells.ts";

interface Run extends Piece {
  width: number;
  /** Each character takes one cell. */
  isPlain: boolean;
}

/** Longer runs are not joined: a text that is both extended and cut is copied each time. */
const mostMerged = 4096;

/** One line of a terminal: text in runs of one look. Columns are cells, from 0. */
export class Line {
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
