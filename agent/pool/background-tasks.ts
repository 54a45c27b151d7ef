import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";

/** Removals of containers, and what gets them ready again: nobody waits for them but the end. */
export type BackgroundTasks = {
  /** Does a task; the promise resolves, whatever comes of it, once it is done. */
  readonly start: (task: () => Promise<void>) => Promise<void>;
  readonly count: () => number;
  /** Resolves when nothing is left to do. */
  readonly whenIdle: () => Promise<void>;
};

/** `failed` hears that the engine did not do what it was asked. */
export function createBackgroundTasks(log: Logger, onFailure: () => void): BackgroundTasks {
  const underWay = new Set<Promise<void>>();

  function start(task: () => Promise<void>): Promise<void> {
    const running = task()
      .catch((error: unknown) => {
        log.warn("container not removed yet: {reason}", { reason: describeError(error) });
        onFailure();
      })
      .finally(() => underWay.delete(running));
    underWay.add(running);
    return running;
  }

  async function whenIdle(): Promise<void> {
    while (underWay.size > 0) await Promise.all(underWay);
  }

  return { start, count: () => underWay.size, whenIdle };
}
