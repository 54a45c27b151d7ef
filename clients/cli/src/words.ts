/** Times and sizes: formatting them, and parsing what users type. */

import { UsageError } from "./exit.ts";

/** 340 ms, 4.2 s, 3 min, 5 h, 12 d. */
export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return "-";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 100_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 2 * 3_600_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 2 * 86_400_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}

/** How long ago a time of the service was. */
export function age(time: string | null | undefined, now = Date.now()): string {
  return time ? duration(Math.max(0, now - Date.parse(time))) : "-";
}

/** Time from one moment to another; to now if there is no second one. */
export function between(from: string | null, to: string | null, now = Date.now()): string {
  if (from === null) return "-";
  return duration((to === null ? now : Date.parse(to)) - Date.parse(from));
}

export function bytes(count: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let [value, at] = [count, 0];
  while (value >= 1000 && at < units.length - 1) [value, at] = [value / 1000, at + 1];
  return `${at === 0 ? value : value.toFixed(1)} ${units[at]}`;
}

/** "250", "500MB", "10 GiB", "10g": as `bytes` writes them, in binary units, and as in the configuration. */
export function parseBytes(text: string, option: string): number {
  const [, count = "", unit = "", i = "", b = ""] =
    /^(\d+(?:\.\d+)?) ?([KMGT]?)(i?)(B?)$/i.exec(text) ?? [];
  const base = b !== "" && i === "" ? 1000 : 1024;
  const size = Math.round(Number(count) * base ** " KMGT".indexOf(unit.toUpperCase() || " "));
  if (count !== "" && Number.isSafeInteger(size)) return size;
  throw new UsageError(`${option} "${text}" must be a number of bytes, or such as 500MB or 10g`);
}

const unitMs: Record<string, number> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** "10m", "2h", "1d" as milliseconds. */
export function parseDuration(text: string, option: string): number {
  const [, count = "", unit = ""] = /^(\d+(?:\.\d+)?)([smhd])$/.exec(text) ?? [];
  const ms = Number(count) * (unitMs[unit] ?? Number.NaN);
  if (ms > 0) return ms;
  throw new UsageError(`${option} "${text}" must be a duration, such as 30s, 10m, 2h or 1d`);
}

/** A time of day or a duration before now, as epoch ms. */
export function parseSince(text: string, now = Date.now()): number {
  const time = Date.parse(text);
  return /^\d{4}-/.test(text) && !Number.isNaN(time) ? time : now - parseDuration(text, "--since");
}

export function parseNumber(text: string, option: string): number {
  const value = Number(text);
  if (Number.isFinite(value) && text.trim() !== "") return value;
  throw new UsageError(`${option} "${text}" must be a number`);
}

/** Most items in one answer of the service. */
const mostItems = 1000;

/** The value of `-n`. */
export function parseCount(text: string): number {
  const count = Number(text);
  if (Number.isInteger(count) && count >= 1 && count <= mostItems) return count;
  throw new UsageError(`--number "${text}" must be a whole number from 1 to ${mostItems}`);
}

/** What a list says whose end is not shown. */
export function moreThan(shown: string): string {
  const count = Math.min(Number(shown) * 2, mostItems);
  return count > Number(shown) ? `there are more: -n ${count}` : "there are more: filter the list";
}

/** `name=value` pairs. */
export function parsePairs(pairs: readonly string[], option: string): Record<string, string> {
  return Object.fromEntries(
    pairs.map((pair) => {
      const at = pair.indexOf("=");
      if (at < 1) throw new UsageError(`${option} "${pair}" must be name=value`);
      return [pair.slice(0, at), pair.slice(at + 1)];
    }),
  );
}

export const collect = (value: string, before: readonly string[] = []): string[] => [
  ...before,
  value,
];
