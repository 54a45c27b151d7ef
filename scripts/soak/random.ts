import { uniformFloat64 } from "pure-rand/distribution/uniformFloat64";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";

/** Numbers that look random and follow from a seed: the same seed gives the same. */
export type Random = {
  /** From 0 up to, but not including, 1. */
  readonly next: () => number;
  readonly between: (from: number, to: number) => number;
  readonly pick: <T>(items: readonly T[]) => T;
  /** By weight: an item of weight 2 comes twice as often as one of 1. */
  readonly weighted: <T extends { readonly weight: number }>(items: readonly T[]) => T;
};

export function random(seed: number): Random {
  const generator = xoroshiro128plus(seed);
  const next = (): number => uniformFloat64(generator);
  const pick = <T>(items: readonly T[]): T => items[Math.floor(next() * items.length)]!;
  return {
    next,
    between: (from, to) => from + next() * (to - from),
    pick,
    weighted: (items) => {
      const total = items.reduce((sum, { weight }) => sum + weight, 0);
      let left = next() * total;
      return items.find(({ weight }) => (left -= weight) < 0) ?? items.at(-1)!;
    },
  };
}
