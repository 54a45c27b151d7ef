import { effect, type ReadonlySignal, useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { putLast } from "../../../shared/lru.ts";
import { ConnectionError, ProblemError } from "../../typescript/src/errors.ts";
import { clock, key, lostSince, serviceNow, sparing, tenant } from "./client.ts";
import { cameBack } from "./location.ts";
import { loadPage, type Page, type Source } from "./records.ts";

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
  load: (options: { signal: AbortSignal }) => Promise<T>,
  everyMs = usualMs,
  isOver: (data: T) => boolean = () => false,
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
      putLast(seen, name, data, mostSeen);
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
        const data = await load({ signal: ended.signal });
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

/** Looks until there is an answer. */
export const useOnce = <T>(
  name: string,
  load: (options: { signal: AbortSignal }) => Promise<T>,
): ReadonlySignal<Feed<T>> => useFeed(name, load, usualMs, () => true);

/** The newest item that the person has seen, and the oldest that came later; by name of the list. */
const shown = new Map<string, { top?: string | number; until?: string | number }>();

export interface List<T> extends Feed<Page<T>> {
  /** How many items have come since the list was opened, at most a page. */
  fresh: number;
  showFresh: () => void;
}

/**
 * A list, the newest first, that is polled. Its rows stay in their places: items that come later are only
 * counted, until the person asks for them.
 */
export function useList<T>(query: URLSearchParams, source: Source<T>): List<T> {
  const { idOf } = source;
  const name = `${source.path} ${query}`;
  const turn = useSignal(0);
  const place = useMemo(() => {
    const kept = (cameBack() && shown.get(name)) || {};
    shown.set(name, kept);
    return kept;
  }, [name, turn.value]);
  const newest = useFeed(name, ({ signal }) => loadPage(source, query, signal));
  const data = newest.value.name === name ? newest.value.data : undefined;
  if (data?.items[0]) place.top ??= idOf(data.items[0]);
  const isFresh = (item: T): boolean => place.top !== undefined && idOf(item) > place.top;
  const fresh = data?.items.filter(isFresh) ?? [];
  if (fresh.length > 0) place.until ??= idOf(fresh.at(-1)!);
  const { until } = place;
  const olderName = `${name} before ${until}`;
  const older = useFeed(
    olderName,
    async ({ signal }) => {
      if (until === undefined) return undefined;
      const asked = new URLSearchParams(query);
      asked.set("before", String(until));
      return loadPage(source, asked, signal);
    },
    usualMs,
    (page) => page === undefined,
  );
  const page = older.value.name === olderName ? older.value.data : undefined;
  const rest = data && { ...data, items: data.items.filter((item) => !isFresh(item)) };
  return {
    ...newest.value,
    data: page ?? rest,
    fresh: fresh.length,
    showFresh: () => {
      shown.delete(name);
      turn.value += 1;
    },
    refresh: () => {
      newest.value.refresh();
      older.value.refresh();
    },
  };
}
