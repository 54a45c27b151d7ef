const unitMs = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** Milliseconds of a text such as 30m, 1h or 2d; undefined if it is none. */
export function durationMs(text: string): number | undefined {
  const [, count = "", unit = ""] = /^(\d{1,5})([smhd])$/.exec(text) ?? [];
  return unit === "" ? undefined : Number(count) * unitMs[unit as keyof typeof unitMs];
}
