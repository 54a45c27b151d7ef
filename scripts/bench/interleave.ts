import type { Series, Unit } from "./row.ts";

/** One of the things that are compared. */
export type Side = {
  readonly name: string;
  /** Takes one sample. */
  readonly once: () => Promise<number>;
  /** Samples per round; 1 where it is absent. */
  readonly perRound?: number;
};

export type Rounds = { readonly warmUp: number; readonly rounds: number };

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
