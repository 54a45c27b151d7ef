import type { PoolHistory } from "../../shared/wire/health.ts";
import { terminalStatuses } from "../../shared/wire/execution.ts";

export const minuteMs = 60_000;
/** How far back the history goes. */
export const historyMs = 48 * 60 * minuteMs;

interface Minute {
  at: number;
  pending: number;
  running: number;
  slots: number;
  /** Executions that had ended until then, by status. */
  ended: Record<string, number>;
}

/**
 * Puts recorded minutes, the oldest first, into points of `stepMs`, each named by its end. The first
 * minute has no predecessor to count from, so it opens no point.
 */
export function toHistory([first, ...minutes]: Minute[], stepMs: number): PoolHistory {
  let before = first;
  const points = new Map<number, PoolHistory["points"][number]>();
  for (const minute of minutes) {
    const end = Math.ceil(minute.at / stepMs) * stepMs;
    const point = points.get(end) ?? {
      at: new Date(end).toISOString(),
      pending: 0,
      running: 0,
      max_workers: 0,
      ended: { succeeded: 0, failed: 0, timeout: 0, oom: 0, cancelled: 0 },
    };
    point.pending = Math.max(point.pending, minute.pending);
    point.running = Math.max(point.running, minute.running);
    point.max_workers = Math.max(point.max_workers, minute.slots);
    for (const status of terminalStatuses) {
      point.ended[status] += Math.max(
        0,
        (minute.ended[status] ?? 0) - (before?.ended[status] ?? 0),
      );
    }
    points.set(end, point);
    before = minute;
  }
  return { points: [...points.values()] };
}
