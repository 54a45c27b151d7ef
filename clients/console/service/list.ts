import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { type Feed, useFeed } from "./feed.ts";
import { cameBack } from "./location.ts";
import type { Page } from "./records.ts";

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
 *
 * @param idOf Ids grow with time.
 */
export function useList<T>(
  view: string,
  query: URLSearchParams,
  load: (query: URLSearchParams, signal: AbortSignal) => Promise<Page<T>>,
  idOf: (item: T) => string | number,
): List<T> {
  const name = `${view} ${query}`;
  const turn = useSignal(0);
  const place = useMemo(() => {
    const kept = (cameBack() && shown.get(name)) || {};
    shown.set(name, kept);
    return kept;
  }, [name, turn.value]);
  const newest = useFeed(name, (signal) => load(query, signal));
  const data = newest.value.name === name ? newest.value.data : undefined;
  if (data?.items[0]) place.top ??= idOf(data.items[0]);
  const isFresh = (item: T): boolean => place.top !== undefined && idOf(item) > place.top;
  const fresh = data?.items.filter(isFresh) ?? [];
  if (fresh.length > 0) place.until ??= idOf(fresh.at(-1)!);
  const { until } = place;
  const olderName = `${name} before ${until}`;
  const older = useFeed(
    olderName,
    async (signal) => {
      if (until === undefined) return undefined;
      const asked = new URLSearchParams(query);
      asked.set("before", String(until));
      return load(asked, signal);
    },
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
