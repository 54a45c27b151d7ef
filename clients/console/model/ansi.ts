import { expandTabs } from "./cells.ts";

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

/** Control sequences: CSI, OSC, and other escapes. Only SGR (`m`) has an effect. */
// oxlint-disable-next-line no-control-regex -- it looks for control characters
const escapes = /\x1b(?:\[([0-9;:]*)([ -/]*[@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])/g;
// oxlint-disable-next-line no-control-regex -- it looks for control characters
const controls = /[\x00-\x08\x0b-\x1f\x7f]/g;

const plain: Look = {};

/** The visible text of a line of terminal output. */
export function stripAnsi(line: string): string {
  const text = line.includes("\x1b") ? line.replace(escapes, "") : line;
  return expandTabs(overwrite(text).replace(controls, "")).text;
}

/** A carriage return begins the line anew, as progress bars do. */
function overwrite(text: string): string {
  const end = text.endsWith("\r") ? text.length - 1 : text.length;
  const from = text.lastIndexOf("\r", end - 1);
  return text.slice(from + 1, end);
}

/** The pieces of a line, and the look that the next line begins with. */
export function parseAnsi(line: string, start: Look = plain): { pieces: Piece[]; end: Look } {
  const pieces: Piece[] = [];
  let look = start;
  let from = 0;
  const push = (text: string): void => {
    const back = text.lastIndexOf("\r", text.length - 2);
    if (back !== -1) pieces.length = 0;
    const shown = text.slice(back + 1).replace(controls, "");
    if (shown !== "") pieces.push({ text: shown, look });
  };
  if (line.includes("\x1b")) {
    for (const match of line.matchAll(escapes)) {
      push(line.slice(from, match.index));
      if (match[2] === "m") look = nextLook(look, match[1] ?? "");
      from = match.index + match[0].length;
    }
  }
  push(line.slice(from));
  let cell = 0;
  for (const piece of pieces) ({ text: piece.text, to: cell } = expandTabs(piece.text, cell));
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
