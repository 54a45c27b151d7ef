import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";

/** Tasks that remove containers or make them ready again. Only the agent's end waits for them. */
export type BackgroundTasks = {
  /** Starts a task; the promise resolves when it has ended, even if it failed. */
  readonly start: (task: () => Promise<void>) => Promise<void>;
  readonly count: () => number;
  /** Resolves when no task is running. */
  readonly whenIdle: () => Promise<void>;
};

/** `onFailure` is called when the engine fails a task. */
export function createBackgroundTasks(log: Logger, onFailure: () => void): BackgroundTasks {
  const underWay = new Set<Promise<void>>();

  function start(task: () => Promise<void>): Promise<void> {
    const running = task()
      .catch((error: unknown) => {
        log.warn("could not remove a container, trying again later: {reason}", {
          reason: describeError(error),
        });
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
