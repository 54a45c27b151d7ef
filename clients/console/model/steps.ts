/** A line over time: each value holds from `from` to `to`, in ms since 1970. */
export interface Step {
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
