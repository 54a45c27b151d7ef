/** Numbers of one series of samples, in the unit of its samples. */
export type Summary = {
  readonly count: number;
  readonly min: number;
  readonly p50: number;
  readonly p95: number;
  readonly p99: number;
  readonly max: number;
  /** Median distance from the median: the spread, which a few stragglers do not move. */
  readonly mad: number;
};

/** @throws Error without a sample. */
export function summarize(samples: readonly number[]): Summary {
  const sorted = [...samples].sort((a, b) => a - b);
  const p50 = percentile(sorted, 50);
  const distances = sorted.map((sample) => Math.abs(sample - p50)).sort((a, b) => a - b);
  return {
    count: sorted.length,
    min: percentile(sorted, 0),
    p50,
    p95: percentile(sorted, 95),
    p99: percentile(sorted, 99),
    max: percentile(sorted, 100),
    mad: percentile(distances, 50),
  };
}

/** The smallest of the sorted samples that `percent` of them do not exceed (nearest rank). */
export function percentile(sorted: readonly number[], percent: number): number {
  const rank = Math.max(1, Math.ceil((percent / 100) * sorted.length));
  const sample = sorted[rank - 1];
  if (sample === undefined) throw new Error("no sample to summarize");
  return sample;
}
