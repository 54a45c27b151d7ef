import type { Summary } from "./statistics.ts";
import type { World } from "./world.ts";

/** One line of the bench: something measured beside what it is compared with. */
export type Row = {
  /** What `--only` calls it. */
  readonly name: string;
  readonly what: string;
  /** The goal in words. */
  readonly goal: string;
  /** Why it cannot be measured here; absent or null where it can. */
  readonly obstacle?: (world: World) => string | null | Promise<string | null>;
  /** Measures all sides in one go; the first is the one that the others are set against. */
  readonly measure: (world: World) => Promise<Series[]>;
  /** The goal as a check on the measured series, each by how its name begins; none to reach without it. */
  readonly reaches?: (of: (series: string) => Summary) => boolean;
};

export type Unit = "ms" | "/s" | "s/min" | "MB" | "×";

/** The samples of one side. */
export type Series = {
  readonly name: string;
  readonly unit: Unit;
  readonly samples: readonly number[];
};
