import { addressOf, type Parameters } from "../model/address.ts";

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
