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

export const plain: Look = {};

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
export function nextLook(before: Look, parameters: string): Look {
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
