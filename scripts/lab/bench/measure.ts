import type { Service, World } from "./world.ts";

/** One line of the bench: something measured beside what it is compared with. */
export type Row = {
  /** What `--only` calls it. */
  readonly name: string;
  readonly what: string;
  /** The goal in words. */
  readonly goal: string;
  /** Measures all sides in one go; the first is the one that the others are set against. */
  readonly measure: (world: World) => Promise<Series[]>;
  /** The goal as a check on the measured series, each by how its name begins. */
  readonly reaches: (of: (series: string) => Summary, has: (series: string) => boolean) => boolean;
};

export type Unit = "ms" | "/s" | "MB" | "kB" | "MB/s" | "each";

/** The samples of one side. */
export type Series = {
  readonly name: string;
  readonly unit: Unit;
  readonly samples: readonly number[];
};

/** One of the things that are compared. */
export type Side = {
  readonly name: string;
  /** Takes one sample. */
  readonly once: () => Promise<number>;
  /** Samples per round; 1 where it is absent. */
  readonly perRound?: number;
};

type Rounds = { readonly warmUp: number; readonly rounds: number };

/**
 * Measures all sides in turn, round after round, so that what the machine does besides meets them
 * alike. The first `warmUp` rounds are not counted.
 */
export async function interleave(
  unit: Unit,
  sides: readonly Side[],
  { warmUp, rounds }: Rounds,
): Promise<Series[]> {
  const series = sides.map((side) => ({ side, samples: [] as number[] }));
  for (let round = -warmUp; round < rounds; round++) {
    for (const { side, samples } of series) {
      for (let i = 0; i < (side.perRound ?? 1); i++) {
        const sample = await side.once();
        if (round >= 0) samples.push(sample);
      }
    }
  }
  return series.map(({ side: { name }, samples }) => ({ name, unit, samples }));
}

/** Milliseconds that `task` takes. */
export async function timed(task: () => Promise<unknown>): Promise<number> {
  const beganAt = performance.now();
  await task();
  return performance.now() - beganAt;
}

/** A side that waits for a service to come to rest before each sample, and takes the time of `task`. */
export const whenSettled = (
  service: Service,
  name: string,
  task: () => Promise<unknown>,
): Side => ({
  name,
  once: async () => {
    await service.settled();
    return timed(task);
  },
});

/**
 * Times per second that `workers` at once get a task done: what ends in `forMs`, after a lead-in that
 * uses up what lay ready.
 */
export async function rate(
  workers: number,
  { leadInMs, forMs }: { leadInMs: number; forMs: number },
  task: () => Promise<unknown>,
): Promise<number> {
  const from = performance.now() + leadInMs;
  const to = from + forMs;
  let done = 0;
  const work = async (): Promise<void> => {
    while (performance.now() < to) {
      await task();
      const now = performance.now();
      if (now >= from && now < to) done += 1;
    }
  };
  await Promise.all(Array.from({ length: workers }, work));
  return done / (forMs / 1000);
}

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
