import type { ComponentChildren } from "preact";
import { addressOf } from "../model/address.ts";
import { formatCount } from "../model/numbers.ts";
import { type List, useList } from "../service/feed.ts";
import { filtersOf, pageSize, type Source } from "../service/records.ts";
import { Bulk, type BulkJob } from "./bulk.tsx";
import { Empty, Heading, Loading, openDialog, Problem, ScopedButton } from "./elements.tsx";
import { type Column, Table } from "./table.tsx";

/** What a view declares of a list that the service has in pages. */
interface ListViewProps<Item> {
  title: string;
  /** Its place in addresses. */
  view: string;
  /** Of its address: filters and the page. */
  query: URLSearchParams;
  source: Source<Item>;
  columns: Column<Item>[];
  opensRows?: boolean;
  /** Stand in the heading, before and after the button for new items. */
  figures?: (list: List<Item>) => ComponentChildren;
  actions?: ComponentChildren;
  /** Actions on all items that the filters find, each with the text of its button. */
  bulk?: [button: string, BulkJob<Item>][];
  onBulkEnd?: () => void;
  /** Controls that set the filters; with the list, some show only where there is something. */
  filters: ComponentChildren | ((list: List<Item>) => ComponentChildren);
  /** Items that are shown, if these differ from those that the service has. */
  arrange?: (items: Item[]) => Item[];
  /** Said if there is nothing at all. */
  empty: ComponentChildren;
  /** Said if the filters find nothing, before a link that leads to all. */
  noMatch?: string;
}

/** A list: its heading with what can be done, its filters, its items in a table, and its pages. */
export function ListView<Item>(props: ListViewProps<Item>) {
  const { title, view, query, source, columns, bulk = [], noMatch } = props;
  const list = useList(query, source);
  const { data, problem, refresh } = list;
  const given = filtersOf(source, query);
  const had = data?.items ?? [];
  const items = props.arrange?.(had) ?? had;
  const last = had.at(-1);
  const endBulk = (): void => {
    props.onBulkEnd?.();
    refresh();
  };
  return (
    <>
      <Heading title={title}>
        {props.figures?.(list)}
        <Fresh list={list} />
        {items.length > 0 &&
          bulk.map(([button, job]) => (
            <ScopedButton
              key={button}
              scope="run"
              class={job.isDangerous ? "danger" : undefined}
              onClick={() => openDialog(<Bulk {...{ job, source, query }} onEnd={endBulk} />)}
            >
              {button}
            </ScopedButton>
          ))}
        {props.actions}
      </Heading>
      {typeof props.filters === "function" ? props.filters(list) : props.filters}
      <Problem text={problem} />
      <Loading feed={list} />
      {items.length > 0 && <Table {...props} {...{ columns, items, refresh }} idOf={source.idOf} />}
      {data &&
        items.length === 0 &&
        (isGiven(given) && noMatch ? (
          <Empty>
            {noMatch} <a href={addressOf(view)}>Show all</a>
          </Empty>
        ) : (
          props.empty
        ))}
      <Pages
        view={view}
        filters={given}
        isFirst={!query.get("before")}
        before={data?.has_more && last ? String(source.idOf(last)) : undefined}
      />
    </>
  );
}

export const isGiven = (filters: Record<string, string[]>): boolean =>
  Object.values(filters).some(({ length }) => length > 0);

interface KindsProps {
  label: string;
  kinds: { title: string; address: string; isHere: boolean; count?: number | undefined }[];
  children?: ComponentChildren;
}

/** Links to parts of a list, one of which is shown. */
export function Kinds({ label, kinds, children }: KindsProps) {
  return (
    <nav class="kinds" aria-label={label}>
      {kinds.map(({ title, address, isHere, count }) => (
        <a key={title} href={address} aria-current={isHere ? "page" : undefined}>
          {title}
          {count !== undefined && (
            <>
              {" "}
              <span class="number">{formatCount(count)}</span>
            </>
          )}
        </a>
      ))}
      {children}
    </nav>
  );
}

interface PagesProps {
  view: string;
  /** The filters of the view, which the links keep. */
  filters: Record<string, string[]>;
  isFirst: boolean;
  /** Where the next page begins; undefined on the last one. */
  before: string | undefined;
}

/** Links to the newest and the next page of a list. */
function Pages({ view, filters, isFirst, before }: PagesProps) {
  if (isFirst && before === undefined) return null;
  return (
    <nav class="pages" aria-label="Pages">
      {!isFirst && <a href={addressOf(view, filters)}>Newest</a>}
      {before !== undefined && <a href={addressOf(view, { ...filters, before })}>Older</a>}
    </nav>
  );
}

/** Shows the items that came since the list was opened, when the person asks for them. */
function Fresh<T>({ list: { fresh, showFresh } }: { list: List<T> }) {
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
