import { addressOf, type Parameters } from "../model/address.ts";
import { formatCount } from "../model/time.ts";
import { pageSize } from "../service/records.ts";
import type { List } from "../service/list.ts";

interface Props {
  view: string;
  /** The filters of the view, which the links keep. */
  filters: Parameters;
  isFirst: boolean;
  /** Where the next page begins; undefined on the last one. */
  before: string | undefined;
}

/** Links to the newest and the next page of a list. */
export function Pages({ view, filters, isFirst, before }: Props) {
  if (isFirst && before === undefined) return null;
  return (
    <nav class="pages" aria-label="Pages">
      {!isFirst && <a href={addressOf(view, filters)}>Newest</a>}
      {before !== undefined && <a href={addressOf(view, { ...filters, before })}>Older</a>}
    </nav>
  );
}

/** Shows the items that came since the list was opened, when the person asks for them. */
export function Fresh<T>({ list: { fresh, showFresh } }: { list: List<T> }) {
  if (fresh === 0) return null;
  const show = (): void => {
    showFresh();
    scrollTo(0, 0);
    // The button goes away.
    document.querySelector("h1")?.focus();
  };
  return (
    <button onClick={show}>
      {formatCount(fresh)}
      {fresh === pageSize && " or more"} new
    </button>
  );
}
