/** Numbers that look random and follow from a seed: the same seed gives the same. */
export type Random = {
  /** From 0 up to, but not including, 1. */
  readonly next: () => number;
  readonly between: (from: number, to: number) => number;
  readonly pick: <T>(items: readonly T[]) => T;
  /** By weight: an item of weight 2 comes twice as often as one of 1. */
  readonly weighted: <T extends { readonly weight: number }>(items: readonly T[]) => T;
};

/** Steps of the golden ratio, mixed by xorshift and multiplication (splitmix, 32 bits). */
export function random(seed: number): Random {
  let state = seed >>> 0;
  function next(): number {
    state = (state + 0x9e3779b9) >>> 0;
    let mixed = state;
    mixed = Math.imul(mixed ^ (mixed >>> 16), 0x21f0aaad);
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
    return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32;
  }
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
