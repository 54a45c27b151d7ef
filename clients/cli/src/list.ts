import type { Tool } from "./tool.ts";
import { moreThan } from "./words.ts";

/** What each column shows of an item, by its title. */
type Columns<Item> = Record<string, (item: Item) => string>;

/** Columns of numbers and times, which line up at their right. */
const right = new Set([
  "AGE",
  "CALLS",
  "JOBS",
  "MEMORY",
  "RAN",
  "SEEN",
  "SIZE",
  "TRIES",
  "USED",
  "WAITED",
]);
const colored = new Set(["STATE", "STATUS"]);

/** Shows items as a table, or says that there are `none`; with --json, the items as they are. */
export function showList<Item>(
  { terminal }: Tool,
  items: readonly Item[],
  none: string,
  columns: Columns<Item>,
): void {
  if (terminal.json) return terminal.document(items);
  if (items.length === 0) return terminal.note(none);
  terminal.table(
    Object.keys(columns).map((title) => ({
      title,
      right: right.has(title),
      colored: colored.has(title),
    })),
    items.map((item) => Object.values(columns).map((of) => of(item))),
  );
}

/** The same for the beginning of a list, of at most `number` items. */
export function showPage<Item>(
  tool: Tool,
  { items, has_more }: { items: readonly Item[]; has_more: boolean },
  number: string,
  none: string,
  columns: Columns<Item>,
): void {
  showList(tool, items, none, columns);
  if (has_more && !tool.terminal.json) tool.terminal.note(moreThan(number));
}

/** The column that says whose each item is, where those of all tenants are listed. */
export function tenantColumn({ globals }: Tool): Columns<{ tenant?: string | undefined }> {
  return globals.tenant === "*" ? { TENANT: ({ tenant = "" }) => tenant } : {};
}
