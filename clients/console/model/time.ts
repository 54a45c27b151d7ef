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
