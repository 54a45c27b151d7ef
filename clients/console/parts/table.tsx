import type { ComponentChildren } from "preact";
import { tenant } from "../service/client.ts";
import { Age } from "./elements.tsx";

/** A column of a table: its title, and what is in it of each item. */
export interface Column<Item> extends Look<Item> {
  title: string;
  kind?: "number" | "wide" | "actions";
  cell: Cell<Item>;
}

type Cell<Item> = (item: Item, refresh: () => void) => ComponentChildren;

interface Look<Item> {
  /** Classes of its cells, beside that of the kind. */
  class?: string;
  /** Narrow screens show no head: there the cells begin with the title. */
  isNamed?: boolean;
  /** Shown when a cell is pointed at. */
  hint?: (item: Item) => string | undefined;
}

const columnOf =
  (kind: Pick<Column<never>, "kind" | "class" | "isNamed">) =>
  <Item,>(title: string, cell: Cell<Item>, look: Look<Item> = {}): Column<Item> => ({
    ...kind,
    ...look,
    title,
    cell,
  });

export const plain = columnOf({});
export const named = columnOf({ isNamed: true });
export const number = columnOf({ kind: "number", isNamed: true });
/** Numbers that are read from the left, such as versions. */
export const digits = columnOf({ class: "number-left", isNamed: true });
/** Takes the room that is left. */
export const wide = columnOf({ kind: "wide" });
/** Buttons, without a title above them. */
export const actions = <Item,>(cell: Cell<Item>): Column<Item> =>
  columnOf({ kind: "actions" })("Actions", cell);

/** How long ago something was, or a word if it never was. */
export const age = <Item,>(
  title: string,
  at: (item: Item) => string | null,
  { never = "–", ...look }: Look<Item> & { never?: string } = {},
): Column<Item> => {
  const cell = (item: Item): ComponentChildren => {
    const time = at(item);
    return time === null ? never : <Age at={time} />;
  };
  return plain(title, cell, { class: "quiet number-left", ...look });
};

/** Says whose each item is, where those of all tenants are shown. */
const whose = named<{ tenant?: string | undefined }>("Tenant", ({ tenant }) => tenant);
export const whoseIfAll = (): (typeof whose)[] => (tenant.value === "*" ? [whose] : []);

interface TableProps<Item> {
  columns: Column<Item>[];
  items: readonly Item[];
  idOf: (item: Item) => string | number;
  /** A click anywhere in a row opens the execution that it names. */
  opensRows?: boolean;
  /** Reads the items again, after an action of a row. */
  refresh?: () => void;
}

/** A list with a head; on narrow screens each row is a block, and cells with `data-name` say what they are. */
export function Table<Item>(props: TableProps<Item>) {
  const { columns, items, idOf, opensRows = false, refresh = () => {} } = props;
  return (
    <table class={opensRows ? "list opens" : "list"}>
      <thead>
        <tr>
          {columns.map(({ title, kind }) => (
            <th key={title} scope="col" class={kind === "actions" ? undefined : kind}>
              {kind === "actions" ? <span class="hidden">{title}</span> : title}
            </th>
          ))}
        </tr>
      </thead>
      {/* oxlint-disable-next-line jsx-a11y/click-events-have-key-events, jsx-a11y/no-noninteractive-element-interactions -- by keyboard, the link in the row does the same */}
      <tbody onClick={opensRows ? openRow : undefined}>
        {items.map((item) => (
          <tr key={idOf(item)}>
            {columns.map((column) => (
              <td
                key={column.title}
                class={classOf(column)}
                title={column.hint?.(item)}
                data-name={column.isNamed ? nameOf(column.title) : undefined}
              >
                {column.cell(item, refresh)}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const classOf = ({ kind, class: more }: Pick<Column<never>, "kind" | "class">) =>
  [kind === "actions" ? "row-actions" : kind, more].filter(Boolean).join(" ") || undefined;

/** The title as it stands before a value, such as "last used". Names and abbreviations stay as they are. */
const nameOf = (title: string): string =>
  /^(Python|[A-Z]{2})/.test(title) ? title : title.toLowerCase();

function openRow({ target }: MouseEvent): void {
  const clicked = target as Element;
  const hasOwnAction = clicked.closest("a, button") !== null;
  const isSelecting = getSelection()?.isCollapsed === false;
  if (hasOwnAction || isSelecting) return;
  clicked.closest("tr")?.querySelector<HTMLAnchorElement>("a.id")?.click();
}
