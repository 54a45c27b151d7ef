import { type Look, nextLook, plain } from "./ansi.ts";
import { Line } from "./line.ts";

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
export class Terminal {
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
