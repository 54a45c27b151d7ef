import { effect, useSignal, type ReadonlySignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ConnectionError, ProblemError } from "../../typescript/src/transport/errors.ts";
import { lostSince, sparing } from "./client.ts";
import { clock, serviceNow } from "./clock.ts";
import { key, tenant } from "./key.ts";
import { cameBack } from "./location.ts";

const usualMs = 5000;

/** What a tab read, for other tabs with the same key and tenant, which then need not poll. */
interface Look {
  name: string;
  data: unknown;
}
const listeners = new Set<(look: Look) => void>();
let looks: BroadcastChannel | undefined;
effect(() => {
  // A page without the key cannot know the name of the channel.
  const channel = new BroadcastChannel(`airlock-looks ${tenant.value} ${key.value}`);
  channel.addEventListener("message", ({ data }: MessageEvent<Look>) => {
    for (const hear of listeners) hear(data);
  });
  looks = channel;
  return () => channel.close();
});
/** The tab that polled polls again. Another tab does so only if the next poll is later than this. */
const graceMs = 500;

/** The last data by name: a page shows them at once when the person comes back to it. */
const seen = new Map<string, unknown>();
const mostSeen = 20;

function remember(name: string, data: unknown): void {
  seen.delete(name);
  seen.set(name, data);
  if (seen.size > mostSeen) seen.delete(seen.keys().next().value!);
}

export interface Feed<T> {
  /** The name that the data belong to: just after a change of the name, the earlier one. */
  name: string;
  data: T | undefined;
  /** Why the last look failed. The data of the look before stay. */
  problem: string | undefined;
  /** Looks again now. */
  refresh: () => void;
}

/**
 * Looks at the service now, every 5 s (or `everyMs`) and when the page is shown again; never while it is hidden.
 * If several tabs show the same, one polls.
 *
 * @param name Names what is polled, with all that the answer depends on. A new name begins anew.
 * @param isOver Whether there is nothing more to come.
 */
export function useFeed<T>(
  name: string,
  load: (signal: AbortSignal) => Promise<T>,
  isOver: (data: T) => boolean = () => false,
  everyMs = usualMs,
): ReadonlySignal<Feed<T>> {
  const before = (): T | undefined => (cameBack() ? (seen.get(name) as T) : undefined);
  const feed = useSignal<Feed<T>>({ name, data: before(), problem: undefined, refresh: () => {} });
  useEffect(() => {
    const ended = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isLooking = false;
    let isDone = false;
    const refresh = (): void => void look();
    const set = (next: Partial<Feed<T>>): void => {
      feed.value = { ...feed.value, refresh, ...next };
    };
    const show = (data: T): void => {
      clock.value = serviceNow();
      remember(name, data);
      set({ data, problem: undefined });
      isDone = isOver(data);
    };
    const lookIn = (ms: number): void => {
      clearTimeout(timer);
      if (!isDone && !document.hidden) timer = setTimeout(refresh, sparing(ms));
    };
    const hear = (look: Look): void => {
      if (look.name !== name || document.hidden || isDone || isLooking) return;
      lostSince.value = undefined;
      show(look.data as T);
      lookIn(everyMs + graceMs * (1 + Math.random()));
    };
    const look = async (): Promise<void> => {
      if (isLooking) return;
      clearTimeout(timer);
      isLooking = true;
      let pauseMs = everyMs;
      try {
        const data = await load(ended.signal);
        if (ended.signal.aborted) return;
        show(data);
        // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a channel has no target: it is its origin's
        if (!isDone) looks?.postMessage({ name, data } satisfies Look);
      } catch (error) {
        if (ended.signal.aborted) return;
        if (error instanceof ProblemError && error.retryAfterS) pauseMs = error.retryAfterS * 1000;
        // The banner of the page says that the service is gone.
        if (!(error instanceof ConnectionError)) set({ problem: (error as Error).message });
      } finally {
        isLooking = false;
      }
      lookIn(pauseMs);
    };
    const turn = (): void => {
      if (document.hidden) clearTimeout(timer);
      else if (!isDone) refresh();
    };
    set({ name, data: before(), problem: undefined });
    refresh();
    listeners.add(hear);
    document.addEventListener("visibilitychange", turn);
    return () => {
      ended.abort();
      clearTimeout(timer);
      listeners.delete(hear);
      document.removeEventListener("visibilitychange", turn);
    };
  }, [name]);
  return feed;
}
