import type { ComponentChildren } from "preact";
import { tenant } from "../service/key.ts";

/** A column: `wide` takes the room that is left, `actions` shows no title. */
export type Column = string | { title: string; kind: "number" | "wide" | "actions" };

export const number = (title: string): Column => ({ title, kind: "number" });
export const wide = (title: string): Column => ({ title, kind: "wide" });
export const actions: Column = { title: "Actions", kind: "actions" };

/** The column that says whose each row is, where those of all tenants are shown. */
export const whose = (): Column[] => (tenant.value === "*" ? ["Tenant"] : []);

export const Whose = ({ of }: { of: { tenant?: string | undefined } }) =>
  tenant.value === "*" ? <td data-name="tenant">{of.tenant}</td> : null;

interface Props {
  columns: Column[];
  /** A click anywhere in a row opens the execution that it names. */
  opensRows?: boolean;
  /** The rows. */
  children: ComponentChildren;
}

/** A list with a head; on narrow screens each row is a block, and cells with `data-name` say what they are. */
export function Table({ columns, opensRows = false, children }: Props) {
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
