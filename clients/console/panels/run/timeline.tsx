import { phasesOf } from "../../model/phases.ts";
import { formatDuration } from "../../model/time.ts";
import { clock } from "../../service/clock.ts";
import type { ExecutionRecord } from "../../service/records.ts";

/** What the time went into, from submission to end, to one scale. */
export function Timeline({ record }: { record: ExecutionRecord }) {
  const phases = phasesOf(record, clock.value);
  const total = Math.max(1, ...phases.map(({ startMs, durationMs }) => startMs + durationMs));
  const percent = (ms: number): string => `${((ms / total) * 100).toFixed(2)}%`;
  return (
    <section aria-label="Timeline">
      <ol class={`timeline ${record.status}`}>
        {phases.map(({ name, startMs, durationMs }) => (
          <li key={startMs} class={name.toLowerCase()}>
            <span>{name}</span>
            <span class="bar" aria-hidden="true">
              <span style={{ left: percent(startMs), width: percent(durationMs) }} />
            </span>
            <span class="number">{formatDuration(durationMs)}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}
