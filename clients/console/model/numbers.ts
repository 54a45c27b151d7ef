/** "0 ms", "950 ms", "1.4 s", "12 s", "3 min 5 s", "2 h 10 min", "3 d 4 h". */
export function formatDuration(ms: number): string {
  if (ms < 0) return "0 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 9950) return `${(ms / 1000).toFixed(1)} s`;
  const s = Math.round(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return two(Math.floor(s / 60), "min", s % 60, "s");
  const min = Math.floor(s / 60);
  if (min < 1440) return two(Math.floor(min / 60), "h", min % 60, "min");
  const h = Math.floor(min / 60);
  return two(Math.floor(h / 24), "d", h % 24, "h");
}

function two(a: number, unitA: string, b: number, unitB: string): string {
  return b === 0 ? `${a} ${unitA}` : `${a} ${unitA} ${b} ${unitB}`;
}

/** How long ago a time is, in one unit: "4 s ago". */
export function formatAge(iso: string, now: number): string {
  const s = Math.floor((now - Date.parse(iso)) / 1000);
  if (s < 1) return "now";
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ago`;
  return `${Math.floor(s / 86_400)} d ago`;
}

const pad = (n: number): string => String(n).padStart(2, "0");

/** A time for people, to the second, in their own time zone. */
export function formatTime(iso: string): string {
  const time = new Date(iso);
  if (Number.isNaN(time.getTime())) return iso;
  const day = `${time.getFullYear()}-${pad(time.getMonth() + 1)}-${pad(time.getDate())}`;
  return `${day} ${pad(time.getHours())}:${pad(time.getMinutes())}:${pad(time.getSeconds())}`;
}

/** A sentence of the service, with its times as people read them. */
export const withLocalTimes = (text: string): string =>
  text.replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, formatTime);

/** "1,204". Without Intl, whose first use takes 12 ms. */
export const formatCount = (n: number): string => String(n).replaceAll(/\B(?=(\d{3})+$)/g, ",");

/** "1 line", "1,204 lines". */
export const formatThings = (n: number, thing: string): string =>
  `${formatCount(n)} ${thing}${n === 1 ? "" : "s"}`;

/** "0 B", "900 B", "1.2 KiB", "3.4 MiB". */
export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let unit = "";
  for (const next of units) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

/** A number of bytes in the units that show it exactly and shortest: "10 GiB", "500 MB", "1001 B". */
export function sizeText(bytes: number): string {
  const [binary, decimal] = [inUnits(bytes, 1024, "iB"), inUnits(bytes, 1000, "B")];
  return binary.length < decimal.length ? binary : decimal;
}

function inUnits(bytes: number, base: number, end: string): string {
  let [value, at] = [bytes, 0];
  while (value > 0 && value % base === 0 && at < 4) [value, at] = [value / base, at + 1];
  return at === 0 ? `${value} B` : `${value} ${"KMGT"[at - 1]}${end}`;
}

/** "10 GiB", "10g", "500 MB", "1000" as bytes; undefined if it is none of these. */
export function parseSize(text: string): number | undefined {
  const match = /^(\d+(?:\.\d+)?) ?([KMGT]?)(i?)(B?)$/i.exec(text.trim());
  if (!match) return undefined;
  const [, count, letter = "", i, b] = match;
  // "10 GB" is decimal, as disks are sold; "10 GiB" and "10g", as in the configuration, are not.
  const base = b !== "" && i === "" ? 1000 : 1024;
  return Math.round(Number(count) * base ** " KMGT".indexOf(letter.toUpperCase() || " "));
}

/** A line over time: each value holds from `from` to `to`, in ms since 1970. */
interface Step {
  from: number;
  to: number;
  value: number;
}

/** The SVG path of steps from `start` on. `most` is at 0, zero at 100. The line has a gap where a time has no step. */
export function pathOf(steps: Step[], start: number, most: number): string {
  let end: number | undefined;
  return steps
    .map(({ from, to, value }) => {
      const y = +(100 - (value / most) * 100).toFixed(2);
      const way = from === end ? `V${y}` : `M${from - start} ${y}`;
      end = to;
      return `${way}H${to - start}`;
    })
    .join("");
}

/** The least of 1, 2, 5, 10, 20, 50, … that is not below a number. */
export function roundUp(n: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, n)));
  return [1, 2, 5, 10].map((times) => times * power).find((round) => round >= n)!;
}

const hourMs = 3_600_000;

/** Whole local hours within a time, at most eight of them, at equal distances from midnight. */
export function hoursIn(start: number, end: number): number[] {
  const every = [1, 3, 6, 12, 24].find((hours) => (end - start) / hours / hourMs <= 8) ?? 24;
  const time = new Date(start);
  time.setHours(0, 0, 0, 0);
  const hours: number[] = [];
  // By the calendar: days on which clocks change have 23 or 25 hours.
  for (; time.getTime() <= end; time.setHours(time.getHours() + every)) {
    if (time.getTime() >= start) hours.push(time.getTime());
  }
  return hours;
}
