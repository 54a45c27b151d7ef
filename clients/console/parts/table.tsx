import type { ComponentChildren } from "preact";

/** A column: `wide` takes the room that is left, `actions` shows no title. */
export type Column = string | { title: string; kind: "number" | "wide" | "actions" };

export const number = (title: string): Column => ({ title, kind: "number" });
export const wide = (title: string): Column => ({ title, kind: "wide" });
export const actions: Column = { title: "Actions", kind: "actions" };

interface Props {
  columns: Column[];
  /** The rows. */
  children: ComponentChildren;
}

/** A list with a head; on narrow screens each row is a block, and cells with `data-name` say what they are. */
export function Table({ columns, children }: Props) {
  return (
    <table class="list">
      <thead>
        <tr>
          {columns.map((column) => (
            <Head key={typeof column === "string" ? column : column.title} column={column} />
          ))}
        </tr>
      </thead>
      <tbody>{children}</tbody>
    </table>
  );
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
