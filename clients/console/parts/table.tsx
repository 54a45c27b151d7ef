import type { ComponentChildren } from "preact";
import { addressOf, type Parameters } from "../model/address.ts";
import { formatCount } from "../model/numbers.ts";
import { tenant } from "../service/client.ts";
import type { List } from "../service/feed.ts";
import { pageSize } from "../service/records.ts";

/** A column: `wide` takes the room that is left, `actions` shows no title. */
type Column = string | { title: string; kind: "number" | "wide" | "actions" };

export const number = (title: string): Column => ({ title, kind: "number" });
export const wide = (title: string): Column => ({ title, kind: "wide" });
export const actions: Column = { title: "Actions", kind: "actions" };

/** The column that says whose each row is, where those of all tenants are shown. */
export const whose = (): Column[] => (tenant.value === "*" ? ["Tenant"] : []);

export const Whose = ({ of }: { of: { tenant?: string | undefined } }) =>
  tenant.value === "*" ? <td data-name="tenant">{of.tenant}</td> : null;

interface TableProps {
  columns: Column[];
  /** A click anywhere in a row opens the execution that it names. */
  opensRows?: boolean;
  /** The rows. */
  children: ComponentChildren;
}

/** A list with a head; on narrow screens each row is a block, and cells with `data-name` say what they are. */
export function Table({ columns, opensRows = false, children }: TableProps) {
  return (
    <table class={opensRows ? "list opens" : "list"}>
      <thead>
        <tr>
          {columns.map((column) => (
            <Head key={typeof column === "string" ? column : column.title} column={column} />
          ))}
        </tr>
      </thead>
      {/* oxlint-disable-next-line jsx-a11y/click-events-have-key-events, jsx-a11y/no-noninteractive-element-interactions -- by keyboard, the link in the row does the same */}
      <tbody onClick={opensRows ? openRow : undefined}>{children}</tbody>
    </table>
  );
}

function openRow({ target }: MouseEvent): void {
  const clicked = target as Element;
  const hasOwnAction = clicked.closest("a, button") !== null;
  const isSelecting = getSelection()?.isCollapsed === false;
  if (hasOwnAction || isSelecting) return;
  clicked.closest("tr")?.querySelector<HTMLAnchorElement>("a.id")?.click();
}

function Head({ column }: { column: Column }) {
  if (typeof column === "string") return <th scope="col">{column}</th>;
  const { title, kind } = column;
  return (
    <th scope="col" class={kind === "actions" ? undefined : kind}>
      {kind === "actions" ? <span class="hidden">{title}</span> : title}
    </th>
  );
}

interface PagesProps {
  view: string;
  /** The filters of the view, which the links keep. */
  filters: Parameters;
  isFirst: boolean;
  /** Where the next page begins; undefined on the last one. */
  before: string | undefined;
}

/** Links to the newest and the next page of a list. */
export function Pages({ view, filters, isFirst, before }: PagesProps) {
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
