import type { Look, Piece } from "../model/ansi.ts";
import type { Place, Row } from "../model/output.ts";
import { formatDuration } from "../model/time.ts";

/** Width of the time of a line in characters, such as "12 min 30 s". */
export const timeWidth = 12;

interface RowProps {
  row: Row;
  gutter: string;
  timesFrom: number | undefined;
  needle: string;
  isCurrent: boolean;
  onLink: (place: Place) => void;
}

/** A row of output: its number, its time, and its text in colours. */
export function OutputRow({ row, gutter, timesFrom, needle, isCurrent, onLink }: RowProps) {
  const name = `output-row ${row.stream}${isCurrent ? " current" : ""}`;
  return (
    <div class={name}>
      <button
        class="output-number"
        style={{ width: gutter }}
        aria-hidden="true"
        tabIndex={-1}
        title="Link to this line"
        onClick={() => onLink(row)}
      >
        {row.isContinued ? "" : (row.stream === "stderr" ? "E" : "") + row.number}
      </button>
      {timesFrom !== undefined && (
        <span class="output-time" style={{ width: `${timeWidth}ch` }}>
          {!row.isContinued && row.at !== undefined && formatDuration(row.at - timesFrom)}
        </span>
      )}
      <span>
        {row.pieces.map((piece) => marked(piece, needle))}
        {row.pieces.length === 0 && "\n"}
      </span>
    </div>
  );
}

function marked({ text, look }: Piece, needle: string) {
  const style = styleOf(look);
  const at = needle === "" ? -1 : text.toLowerCase().indexOf(needle);
  if (at === -1) return style ? <span style={style}>{text}</span> : text;
  const parts = [];
  const low = text.toLowerCase();
  let from = 0;
  for (let i = at; i !== -1; i = low.indexOf(needle, from)) {
    parts.push(text.slice(from, i), <mark>{text.slice(i, i + needle.length)}</mark>);
    from = i + needle.length;
  }
  return <span style={style ?? {}}>{[...parts, text.slice(from)]}</span>;
}

const colour = (value: number | string | undefined): string | undefined =>
  typeof value === "number" ? `var(--ansi-${value})` : value;

/** A colour in numbers is meant for a black screen. It keeps its hue, and gets a lightness that can be read on the page. */
const ink = (value: number | string | undefined): string | undefined =>
  typeof value === "string" && value.startsWith("#")
    ? `light-dark(oklch(from ${value} min(l, 0.5) c h), oklch(from ${value} max(l, 0.68) c h))`
    : colour(value);

/** The palette is made for text. As a background, a colour is mixed with that of the page. */
const ground = (value: number | string | undefined): string | undefined =>
  typeof value === "number" ? `color-mix(in srgb, var(--ansi-${value}) 30%, var(--sunk))` : value;

const greys = [0, 7, 8, 15];

function foreground({ fg, bg, inverse }: Look): string | undefined {
  if (inverse) return colour(bg ?? "var(--sunk)");
  // Such as black on yellow, or white on red: both can be read on a background that fits the page.
  const isOnPalette = typeof bg === "number" && greys.includes(fg as number);
  if (isOnPalette) return "var(--text)";
  return bg === undefined ? ink(fg) : colour(fg);
}

function styleOf(look: Look): Record<string, string> | undefined {
  if (Object.keys(look).length === 0) return undefined;
  const fg = foreground(look);
  const bg = look.inverse ? colour(look.fg ?? "var(--text)") : ground(look.bg);
  return {
    ...(fg !== undefined && { color: fg }),
    ...(bg !== undefined && { backgroundColor: bg }),
    ...(look.bold && { fontWeight: "600" }),
    ...(look.faint && { opacity: "0.75" }),
    ...(look.italic && { fontStyle: "italic" }),
    ...(look.underline && { textDecoration: "underline" }),
  };
}
