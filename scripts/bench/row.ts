import type { Summary } from "./statistics.ts";
import type { World } from "./world.ts";

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

export type Unit = "ms" | "/s" | "MB" | "kB";

/** The samples of one side. */
export type Series = {
  readonly name: string;
  readonly unit: Unit;
  readonly samples: readonly number[];
};
