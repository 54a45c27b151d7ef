import { cellsOf, expandTabs } from "./cells.ts";

/** How a piece of terminal output looks. Colours are numbers 0 to 15, or "#rrggbb". */
export interface Look {
  fg?: number | string;
  bg?: number | string;
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

/** Control sequences: CSI, OSC, and other escapes. */
// oxlint-disable-next-line no-control-regex -- it looks for control characters
const escapes = /\x1b(?:\[([0-9;:]*)([ -/]*[@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])/g;
// oxlint-disable-next-line no-control-regex -- it looks for control characters
const controls = /[\x00-\x08\x0b-\x1f\x7f]/g;
/** What writes elsewhere than at the end: progress bars do. */
// oxlint-disable-next-line no-control-regex -- it looks for control characters
const moves = /[\r\b]|\x1b\[[0-9;]*[CDGJK]/;

const plain: Look = {};

/** The visible text of a line of terminal output. */
export function stripAnsi(line: string): string {
  if (!line.includes("\x1b") && !moves.test(line)) {
    return expandTabs(line.replace(controls, "")).text;
  }
  return parseAnsi(line)
    .pieces.map(({ text }) => text)
    .join("");
}

/** The pieces of a line, and the look that the next line begins with. */
export function parseAnsi(line: string, start: Look = plain): { pieces: Piece[]; end: Look } {
  return moves.test(line) ? writeCells(line, start) : appendPieces(line, start);
}

/** Text and control sequences of a line, in order. */
function* partsOf(line: string): Generator<{ text: string; parameters: string; final: string }> {
  let from = 0;
  for (const match of line.matchAll(escapes)) {
    const text = line.slice(from, match.index);
    yield { text, parameters: match[1] ?? "", final: match[2] ?? "" };
    from = match.index + match[0].length;
  }
  yield { text: line.slice(from), parameters: "", final: "" };
}

function appendPieces(line: string, start: Look): { pieces: Piece[]; end: Look } {
  const pieces: Piece[] = [];
  let look = start;
  let cell = 0;
  for (const { text, parameters, final } of partsOf(line)) {
    const shown = expandTabs(text.replace(controls, ""), cell);
    cell = shown.to;
    if (shown.text !== "") pieces.push({ text: shown.text, look });
    if (final === "m") look = nextLook(look, parameters);
  }
  return { pieces, end: look };
}

/** No line is longer because a sequence says so. */
const mostColumns = 4096;

/** As a terminal does: each character takes its cells where the cursor is. Source: ECMA-48, EL and the CU sequences. */
function writeCells(line: string, start: Look): { pieces: Piece[]; end: Look } {
  const cells: Piece[] = [];
  let look = start;
  let column = 0;
  function put(text: string): void {
    while (cells.length < column) cells.push({ text: " ", look: plain });
    cells[column] = { text, look };
    column += 1;
  }
  function write(character: string): void {
    if (character === "\r") column = 0;
    else if (character === "\b") column = Math.max(0, column - 1);
    else if (character === "\t")
      do put(" ");
      while (column % 8 !== 0);
    else {
      const width = cellsOf(character);
      const before = cells[column - 1];
      if (width > 0) put(character);
      else if (before) before.text += character;
      if (width === 2) put("");
    }
  }
  function move(final: string, parameters: string): void {
    const count = Number(parameters) || 0;
    if (final === "m") look = nextLook(look, parameters);
    else if (final === "C") column = Math.min(mostColumns, column + (count || 1));
    else if (final === "D") column = Math.max(0, column - (count || 1));
    else if (final === "G") column = Math.min(mostColumns, Math.max(0, count - 1));
    else if (final === "K" || final === "J") {
      if (count === 0) cells.length = Math.min(cells.length, column);
      else if (count === 1) for (let i = 0; i <= column; i++) cells[i] = { text: " ", look: plain };
      else cells.length = 0;
    }
  }
  for (const { text, parameters, final } of partsOf(line)) {
    for (const character of text) {
      const isControl = character < " " && !"\r\b\t".includes(character);
      if (!isControl && character !== "\x7f") write(character);
    }
    move(final, parameters);
  }
  const pieces: Piece[] = [];
  for (const cell of cells) {
    const last = pieces.at(-1);
    if (last?.look === cell.look) last.text += cell.text;
    else pieces.push({ ...cell });
  }
  return { pieces, end: look };
}

function nextLook(before: Look, parameters: string): Look {
  const codes = parameters.split(/[;:]/).map(Number);
  let look = { ...before };
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i]!;
    if (code === 0) look = {};
    else if (code === 1) look.bold = true;
    else if (code === 2) look.faint = true;
    else if (code === 3) look.italic = true;
    else if (code === 4) look.underline = true;
    else if (code === 7) look.inverse = true;
    else if (code === 22) look = without(look, "bold", "faint");
    else if (code === 23) look = without(look, "italic");
    else if (code === 24) look = without(look, "underline");
    else if (code === 27) look = without(look, "inverse");
    else if (code >= 30 && code <= 37) look.fg = code - 30;
    else if (code >= 90 && code <= 97) look.fg = code - 82;
    else if (code >= 40 && code <= 47) look.bg = code - 40;
    else if (code >= 100 && code <= 107) look.bg = code - 92;
    else if (code === 39) look = without(look, "fg");
    else if (code === 49) look = without(look, "bg");
    else if (code === 38 || code === 48) {
      const { colour, used } = extended(codes.slice(i + 1));
      i += used;
      if (colour !== undefined) look[code === 38 ? "fg" : "bg"] = colour;
    }
  }
  return look;
}

function without(look: Look, ...names: (keyof Look)[]): Look {
  return Object.fromEntries(
    Object.entries(look).filter(([name]) => !names.includes(name as keyof Look)),
  );
}

function extended(codes: number[]): { colour?: number | string; used: number } {
  const [mode, a = 0, b = 0, c = 0] = codes;
  if (mode === 2) return { colour: rgb(a, b, c), used: 4 };
  if (mode !== 5) return { used: 0 };
  if (a < 16) return { colour: a, used: 2 };
  if (a >= 232) return { colour: rgb(...same(8 + (a - 232) * 10)), used: 2 };
  const n = a - 16;
  return {
    colour: rgb(level(Math.floor(n / 36)), level(Math.floor(n / 6) % 6), level(n % 6)),
    used: 2,
  };
}

const level = (n: number): number => (n === 0 ? 0 : 55 + n * 40);

const same = (n: number): [number, number, number] => [n, n, n];

function rgb(...parts: [number, number, number]): string {
  return `#${parts.map((n) => Math.min(255, n).toString(16).padStart(2, "0")).join("")}`;
}
