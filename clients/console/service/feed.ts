import { useSignal, type ReadonlySignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ConnectionError, ProblemError } from "../../typescript/src/errors.ts";
import { clock, serviceNow } from "./clock.ts";

const usualMs = 5000;

export interface Feed<T> {
  data: T | undefined;
  /** Why the last look failed. The data of the look before stay. */
  problem: string | undefined;
  /** Looks again now. */
  refresh: () => void;
}

/**
 * Looks at the service now, every 5 s (or `everyMs`) and when the page is shown again; never while it is hidden.
 *
 * @param name What is looked at: a new name begins anew.
 * @param isOver Whether there is nothing more to come.
 */
export function useFeed<T>(
  name: string,
  load: (signal: AbortSignal) => Promise<T>,
  isOver: (data: T) => boolean = () => false,
  everyMs = usualMs,
): ReadonlySignal<Feed<T>> {
  const feed = useSignal<Feed<T>>({ data: undefined, problem: undefined, refresh: () => {} });
  useEffect(() => {
    const ended = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isLooking = false;
    let isDone = false;
    const refresh = (): void => void look();
    const set = (next: Partial<Feed<T>>): void => {
      feed.value = { ...feed.value, refresh, ...next };
    };
    const look = async (): Promise<void> => {
      if (isLooking) return;
      clearTimeout(timer);
      isLooking = true;
      let pauseMs = everyMs;
      try {
        const data = await load(ended.signal);
        if (ended.signal.aborted) return;
        clock.value = serviceNow();
        set({ data, problem: undefined });
        isDone = isOver(data);
      } catch (error) {
        if (ended.signal.aborted) return;
        if (error instanceof ProblemError && error.retryAfterS) pauseMs = error.retryAfterS * 1000;
        // The banner of the page says that the service is gone.
        if (!(error instanceof ConnectionError)) set({ problem: (error as Error).message });
      } finally {
        isLooking = false;
      }
      if (!isDone && !document.hidden) timer = setTimeout(refresh, pauseMs);
    };
    const show = (): void => {
      if (document.hidden) clearTimeout(timer);
      else if (!isDone) refresh();
    };
    set({ data: undefined, problem: undefined });
    refresh();
    document.addEventListener("visibilitychange", show);
    return () => {
      ended.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", show);
    };
  }, [name]);
  return feed;
}
