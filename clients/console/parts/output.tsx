import { type Signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { hashOf, lineOf } from "../model/address.ts";
import { formatBytes, formatCount, formatDuration, formatThings } from "../model/numbers.ts";
import type { Look, Output, Piece, Place, Row } from "../model/output.ts";
import { copy } from "./elements.tsx";

const rowHeight = 20;
/** A line that is not wrapped is cut into rows of so many characters. */
const mostColumns = 4096;
/** Rows beyond those that are seen. */
const margin = 20;

interface Props {
  label: string;
  /** Name of the file that a download makes. */
  fileName: string;
  output: Output;
  /** Changes when the output has grown. */
  version: number;
  /** From when on the times of lines are counted, in ms since 1970. */
  startedAt?: number | undefined;
  /** The output, which grows. */
  isLive: boolean;
  /** Begins at the end, where a traceback is, and follows it while output grows. */
  showsEnd?: boolean;
  empty: string;
}

/** Output of a program: lines of it are made as they come into view, so that it may be large. */
export function OutputView(props: Props) {
  const { label, fileName, output, version, startedAt, isLive, showsEnd = isLive, empty } = props;
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
  const wraps = useSignal(true);
  const isFull = useSignal(false);
  const timesFrom = wantsTimes.value && output.hasTimes ? startedAt : undefined;
  const digits = String(output.lineCount).length + 2;
  const width = wraps.value ? columns.value : mostColumns;

  useLayoutEffect(() => {
    const measure = (): void => {
      const box = scroller.current;
      if (!box || !probe.current) return;
      const cell = probe.current.getBoundingClientRect().width / 10;
      const taken = digits + (timesFrom === undefined ? 0 : timeWidth);
      const room = box.clientWidth - taken * cell - 28;
      columns.value = Math.max(20, Math.floor(room / cell));
      height.value = box.clientHeight;
    };
    const observer = new ResizeObserver(measure);
    observer.observe(scroller.current!);
    void document.fonts.ready.then(measure);
    measure();
    return () => observer.disconnect();
  }, [output, digits, timesFrom]);

  const isEmpty = output.bytes === 0;
  const total = output.rowCount(width);
  useLayoutEffect(() => {
    const box = scroller.current;
    if (box && showsEnd && isFollowing.current) box.scrollTop = box.scrollHeight;
  }, [version, total]);

  const found = wanted.value === "" ? [] : output.find(wanted.value, width);
  const current = found[Math.min(at.value, found.length - 1)];
  useEffect(() => {
    const box = scroller.current;
    if (box && current !== undefined) box.scrollTop = current * rowHeight - box.clientHeight / 2;
  }, [current]);

  const linkedRow = linked.value === undefined ? undefined : output.rowOf(linked.value, width);
  useEffect(() => {
    const box = scroller.current;
    if (!box || linkedRow === undefined) return;
    isFollowing.current = false;
    const at = linkedRow * rowHeight - box.scrollTop;
    if (at < 0 || at >= box.clientHeight) box.scrollTop += at - box.clientHeight / 2;
  }, [linkedRow]);
  const link = (place: Place): void => {
    linked.value = place;
    history.replaceState(history.state, "", hashOf(place));
  };
  useEffect(() => {
    if (!isFull.value) return undefined;
    const leave = ({ key }: KeyboardEvent): void => {
      if (key === "Escape") isFull.value = false;
    };
    addEventListener("keydown", leave);
    return () => removeEventListener("keydown", leave);
  }, [isFull.value]);

  const first = Math.max(0, Math.floor(top.value / rowHeight) - margin);
  const rows = output.rows(first, Math.ceil(height.value / rowHeight) + 2 * margin, width);
  const step = (by: number): void => {
    if (found.length > 0) at.value = (at.value + by + found.length) % found.length;
  };

  return (
    <section class={isFull.value ? "output full" : "output"} aria-label={label}>
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
        <span class="output-actions">
          {output.hasTimes && startedAt !== undefined && (
            <Check title="When each line was written, from the start of the run" of={wantsTimes}>
              Times
            </Check>
          )}
          <Check title="Long lines take several rows" of={wraps}>
            Wrap
          </Check>
          <button class="small" disabled={isEmpty} onClick={() => void copy(output.text)}>
            Copy
          </button>
          <button
            class="small"
            disabled={isEmpty}
            title="As it was written, in a new tab"
            onClick={() => openRaw(output.raw)}
          >
            Raw
          </button>
          <button
            class="small"
            disabled={isEmpty}
            onClick={() => save(new Blob([output.raw]), fileName)}
          >
            Download
          </button>
          <button
            class="small"
            aria-pressed={isFull.value}
            aria-label="Full window"
            title="Full window; Esc leaves it"
            onClick={() => (isFull.value = !isFull.value)}
          >
            Full
          </button>
        </span>
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
                gutter={`${digits}ch`}
                timesFrom={timesFrom}
                needle={wanted.value.toLowerCase()}
                isCurrent={first + i === current || isAt(row, linked.value)}
                onLink={link}
              />
            ))}
          </div>
        </div>
      </div>
    </section>
  );
}

const isAt = (row: Place, place: Place | undefined): boolean =>
  row.stream === place?.stream && row.number === place.number;

interface CheckProps {
  title: string;
  of: Signal<boolean>;
  children: ComponentChildren;
}

function Check({ title, of, children }: CheckProps) {
  return (
    <label class="check" title={title}>
      <input
        type="checkbox"
        checked={of.value}
        onChange={(event) => (of.value = event.currentTarget.checked)}
      />
      {children}
    </label>
  );
}

/** Width of the time of a line in characters, such as "12 min 30 s". */
const timeWidth = 12;

interface RowProps {
  row: Row;
  gutter: string;
  timesFrom: number | undefined;
  needle: string;
  isCurrent: boolean;
  onLink: (place: Place) => void;
}

/** A row of output: its number, its time, and its text in colours. */
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

/**
 * Puts bytes into the folder of downloads. A link cannot carry the key, so the bytes are fetched first. Their address has
 * the origin of the console: if they kept their content type, they would run there as a page when a person opens it.
 */
export function save(blob: Blob, name: string): void {
  const bytes = new Blob([blob], { type: "application/octet-stream" });
  Object.assign(document.createElement("a"), { href: addressOf(bytes), download: name }).click();
}

/** Shows a text as it is, in a tab of its own. */
function openRaw(text: string): void {
  open(addressOf(new Blob([text], { type: "text/plain;charset=utf-8" })), "_blank");
}

function addressOf(blob: Blob): string {
  const url = URL.createObjectURL(blob);
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
  return url;
}
