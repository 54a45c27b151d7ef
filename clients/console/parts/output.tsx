import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Look, Piece } from "../model/ansi.ts";
import { lineOf } from "../model/address.ts";
import type { Output, Row } from "../model/output.ts";
import { formatBytes, formatCount, formatDuration, formatThings } from "../model/time.ts";
import { copy } from "./copy.ts";

const rowHeight = 20;
/** Characters that the time of a line takes, such as "12 min 30 s". */
const timeWidth = 12;
/** Rows beyond those that are seen. */
const margin = 20;

interface Props {
  label: string;
  output: Output;
  /** Changes when the output has grown. */
  version: number;
  /** From when on the times of lines are counted, in ms since 1970. */
  startedAt?: number | undefined;
  /** Follows the end while it grows. */
  isLive: boolean;
  empty: string;
}

/** Output of a program: lines of it are made as they come into view, so that it may be large. */
export function OutputView(props: Props) {
  const { label, output, version, startedAt, isLive, empty } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const probe = useRef<HTMLSpanElement>(null);
  const columns = useSignal(80);
  const top = useSignal(0);
  const height = useSignal(400);
  const wanted = useSignal("");
  const at = useSignal(0);
  const isFollowing = useRef(true);
  /** The line that the page's address names. Such an address can be shared. */
  const linked = useSignal(lineOf(location.hash));
  const wantsTimes = useSignal(false);
  const timesFrom = wantsTimes.value && output.hasTimes ? startedAt : undefined;
  const gutter = `${String(output.lineCount).length + 1}ch`;

  useLayoutEffect(() => {
    const measure = (): void => {
      const box = scroller.current;
      if (!box || !probe.current) return;
      const width = probe.current.getBoundingClientRect().width / 10;
      const taken = String(output.lineCount).length + 1 + (timesFrom === undefined ? 0 : timeWidth);
      const room = box.clientWidth - taken * width - 28;
      columns.value = Math.max(20, Math.floor(room / width));
      height.value = box.clientHeight;
    };
    const observer = new ResizeObserver(measure);
    observer.observe(scroller.current!);
    void document.fonts.ready.then(measure);
    measure();
    return () => observer.disconnect();
  }, [output, String(output.lineCount).length, timesFrom]);

  const total = output.rowCount(columns.value);
  useLayoutEffect(() => {
    const box = scroller.current;
    if (box && isLive && isFollowing.current) box.scrollTop = box.scrollHeight;
  }, [version, total]);

  const found = wanted.value === "" ? [] : output.find(wanted.value, columns.value);
  const current = found[Math.min(at.value, found.length - 1)];
  useEffect(() => {
    const box = scroller.current;
    if (box && current !== undefined) box.scrollTop = current * rowHeight - box.clientHeight / 2;
  }, [current]);

  const linkedRow =
    linked.value === undefined ? undefined : output.rowOf(linked.value, columns.value);
  useEffect(() => {
    const box = scroller.current;
    if (!box || linkedRow === undefined) return;
    isFollowing.current = false;
    const at = linkedRow * rowHeight - box.scrollTop;
    if (at < 0 || at >= box.clientHeight) box.scrollTop += at - box.clientHeight / 2;
  }, [linkedRow]);
  const link = (line: number): void => {
    linked.value = line;
    history.replaceState(null, "", `#L${line + 1}`);
  };

  const first = Math.max(0, Math.floor(top.value / rowHeight) - margin);
  const rows = output.rows(first, Math.ceil(height.value / rowHeight) + 2 * margin, columns.value);
  const step = (by: number): void => {
    if (found.length > 0) at.value = (at.value + by + found.length) % found.length;
  };

  return (
    <section class="output" aria-label={label}>
      <div class="output-bar">
        <input
          type="search"
          placeholder="Find in output"
          aria-label="Find in output"
          title="Ctrl+K"
          aria-keyshortcuts="Control+K"
          value={wanted.value}
          onInput={(event) => {
            wanted.value = event.currentTarget.value;
            at.value = 0;
          }}
          onKeyDown={(event) => {
            if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
          }}
        />
        <span class="quiet number" role="status">
          {wanted.value === ""
            ? ""
            : found.length === 0
              ? "not found"
              : `${formatCount(Math.min(at.value, found.length - 1) + 1)} of ${formatCount(found.length)}`}
        </span>
        {found.length > 1 && (
          <span class="output-steps">
            <button class="small" aria-label="Previous match" onClick={() => step(-1)}>
              ↑
            </button>{" "}
            <button class="small" aria-label="Next match" onClick={() => step(1)}>
              ↓
            </button>
          </span>
        )}
        <span class="quiet number end output-size">
          {formatThings(output.lineCount, "line")}, {formatBytes(output.bytes)}
        </span>
        {output.hasTimes && startedAt !== undefined && (
          <label class="check" title="When each line was written, from the start of the run">
            <input
              type="checkbox"
              checked={wantsTimes.value}
              onChange={(event) => (wantsTimes.value = event.currentTarget.checked)}
            />
            Times
          </label>
        )}
        <button class="small" onClick={() => void copy(output.text)} disabled={output.bytes === 0}>
          Copy
        </button>
      </div>
      {/* oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolled by keyboard */}
      <div
        class="output-text"
        style={{ "--rows": isLive ? "26" : String(total) }}
        ref={scroller}
        tabIndex={0}
        role="region"
        aria-label={`${label}, text`}
        onScroll={(event) => {
          const box = event.currentTarget;
          top.value = box.scrollTop;
          isFollowing.current = box.scrollTop + box.clientHeight >= box.scrollHeight - rowHeight;
        }}
      >
        <span class="output-probe" ref={probe} aria-hidden="true">
          0000000000
        </span>
        {total === 0 && <p class="quiet output-empty">{empty}</p>}
        <div class="output-space" style={{ height: `${total * rowHeight}px` }}>
          <div class="output-rows" style={{ transform: `translateY(${first * rowHeight}px)` }}>
            {rows.map((row, i) => (
              <OutputRow
                key={first + i}
                row={row}
                gutter={gutter}
                timesFrom={timesFrom}
                needle={wanted.value.toLowerCase()}
                isCurrent={first + i === current || row.line === linked.value}
                onLink={link}
              />
            ))}
          </div>
        </div>
      </div>
    </section>
  );
}

interface RowProps {
  row: Row;
  gutter: string;
  timesFrom: number | undefined;
  needle: string;
  isCurrent: boolean;
  onLink: (line: number) => void;
}

function OutputRow({ row, gutter, timesFrom, needle, isCurrent, onLink }: RowProps) {
  const name = `output-row ${row.stream}${isCurrent ? " current" : ""}`;
  return (
    <div class={name}>
      <button
        class="output-number"
        style={{ width: gutter }}
        aria-hidden="true"
        tabIndex={-1}
        title="Link to this line"
        onClick={() => onLink(row.line)}
      >
        {row.isContinued ? "" : row.line + 1}
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

/** A colour by its numbers is made for a black screen: mixed with that of text, it is read on every page. */
const ink = (value: number | string | undefined): string | undefined =>
  typeof value === "string" && value.startsWith("#")
    ? `color-mix(in srgb, ${value} 50%, var(--text))`
    : colour(value);

/** The palette is made for text: as a background, a colour is mixed with that of the page. */
const ground = (value: number | string | undefined): string | undefined =>
  typeof value === "number" ? `color-mix(in srgb, var(--ansi-${value}) 30%, var(--sunk))` : value;

const greys = [0, 7, 8, 15];

function foreground({ fg, bg, inverse }: Look): string | undefined {
  if (inverse) return colour(bg ?? "var(--sunk)");
  // Black on yellow, or white on red: both are read on a background that fits the page.
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
