import { useSignal } from "@preact/signals";
import { hoursIn, pathOf, roundUp } from "../model/steps.ts";
import { formatCount, formatTime } from "../model/time.ts";

interface Props {
  title: string;
  /** The ends of intervals of equal length, in ms since 1970. Intervals without a record are left out. */
  ends: number[];
  stepMs: number;
  /** Each line has a colour by its class, and a value for each interval. */
  lines: { name: string; colour: string; values: number[] }[];
}

/** "2026-11-23 14:05". */
const minuteOf = (ms: number): string => formatTime(new Date(ms).toISOString()).slice(0, -3);
const timeOf = (ms: number): string => minuteOf(ms).slice(-5);
/** The time of day, and the date at midnight. */
const tickOf = (ms: number): string =>
  timeOf(ms) === "00:00" ? minuteOf(ms).slice(5, 10) : timeOf(ms);

/** A picture of lines over time, the same in words, and the values of one interval. */
export function Chart({ title, ends, stepMs, lines }: Props) {
  const pointed = useSignal<number | undefined>(undefined);
  const start = ends[0]! - stepMs;
  const span = ends.at(-1)! - start;
  const most = roundUp(Math.max(...lines.flatMap(({ values }) => values)));
  const shown = pointed.value ?? ends.length - 1;
  const end = ends[shown] ?? ends.at(-1)!;
  const percent = (ms: number): string => `${((ms - start) / span) * 100}%`;
  const point = (event: PointerEvent): void => {
    const { left, width } = (event.currentTarget as Element).getBoundingClientRect();
    const at = start + ((event.clientX - left) / width) * span;
    const found = ends.findIndex((to) => at <= to && at > to - stepMs);
    pointed.value = found === -1 ? undefined : found;
  };
  const words = lines.map(({ name, values }) => `${name}: at most ${Math.max(...values)}`);
  return (
    <figure>
      <figcaption>
        <h2>{title}</h2>
      </figcaption>
      <div class="chart" onPointerMove={point} onPointerLeave={() => (pointed.value = undefined)}>
        <svg
          viewBox={`0 0 ${span} 100`}
          preserveAspectRatio="none"
          role="img"
          aria-label={`${title}. ${words.join("; ")}.`}
        >
          {pointed.value !== undefined && (
            <rect x={end - stepMs - start} width={stepMs} height="100" />
          )}
          <path d={[0, 50, 100].map((y) => `M0 ${y}H${span}`).join("")} />
          {lines.map(({ name, colour, values }) => (
            <path
              key={name}
              class={colour}
              d={pathOf(
                ends.map((to, i) => ({ from: to - stepMs, to, value: values[i] ?? 0 })),
                start,
                most,
              )}
            />
          ))}
        </svg>
        <span class="most">{formatCount(most)}</span>
        {hoursIn(start, start + span).map((hour) => (
          <span key={hour} class="hour" style={{ left: percent(hour) }}>
            {tickOf(hour)}
          </span>
        ))}
      </div>
      <p class="legend">
        <span>
          {minuteOf(end - stepMs)} to {timeOf(end)}
        </span>
        {lines.map(({ name, colour, values }) => (
          <span key={name} class={colour}>
            {name} <strong>{formatCount(values[shown] ?? 0)}</strong>
          </span>
        ))}
      </p>
    </figure>
  );
}
