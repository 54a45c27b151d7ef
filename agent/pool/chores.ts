import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";

/** Removals of containers, and what gets them ready again: nobody waits for them but the end. */
export type Chores = {
  /** Does a task; the promise resolves, whatever comes of it, once it is done. */
  readonly begin: (task: () => Promise<void>) => Promise<void>;
  readonly count: () => number;
  /** Resolves when nothing is left to do. */
  readonly done: () => Promise<void>;
};

/** `failed` hears that the engine did not do what it was asked. */
export function createChores(log: Logger, failed: () => void): Chores {
  const underWay = new Set<Promise<void>>();

  function begin(task: () => Promise<void>): Promise<void> {
    const chore = task()
      .catch((error: unknown) => {
        log.warn("container not removed yet: {reason}", { reason: describeError(error) });
        failed();
      })
      .finally(() => underWay.delete(chore));
    underWay.add(chore);
    return chore;
  }

  async function done(): Promise<void> {
    while (underWay.size > 0) await Promise.all(underWay);
  }

  return { begin, count: () => underWay.size, done };
}
