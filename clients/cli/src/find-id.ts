import type { Airlock } from "../../typescript/src/index.ts";
import { UsageError } from "./exit.ts";

/** What the end of an id can name, and the command that lists all of a kind. */
const kinds = {
  job: {
    many: "jobs",
    listing: "airlock ps",
    newest: async ({ api }: Airlock, limit: number) =>
      (await api.listExecutions({ limit, fields: "status" })).items.map((one) => one.execution_id),
  },
  session: {
    many: "sessions",
    listing: "airlock session list",
    newest: async ({ api }: Airlock, limit: number) =>
      (await api.listSessions({ limit })).items.map((one) => one.session_id),
  },
} as const;
type Kind = keyof typeof kinds;

/** How many of the newest ones are searched: as many as one page has. */
const searched = 100;
const partOfId = /^[0-9a-f-]{4,35}$/;

/** The id that a word names: an id, or the end of the id of one of the newest ones. */
async function findId(airlock: Airlock, kind: Kind, word: string): Promise<string> {
  if (!partOfId.test(word)) return word;
  return chooseByEnd(await kinds[kind].newest(airlock, searched), word, kind);
}

/**
 * The one id that ends with these characters. Ids of one minute begin alike.
 *
 * @throws UsageError if none does, or several do.
 */
export function chooseByEnd(ids: readonly string[], end: string, kind: Kind): string {
  const { many, listing } = kinds[kind];
  const found = ids.filter((id) => id.endsWith(end));
  const [first] = found;
  if (first !== undefined && found.length === 1) return first;
  throw new UsageError(
    first === undefined
      ? `none of the newest ${searched} ${many} has an id that ends with ${end}; ${listing} shows ids`
      : `the ids of ${found.length} ${many} end with ${end}: give more characters`,
  );
}

/** Whether an argument of this name can be the end of an id. */
export const isKind = (name: string): name is Kind => Object.hasOwn(kinds, name);

/**
 * The ids of what the user gave as a command's argument: one, several or none.
 *
 * @throws UsageError as chooseByEnd.
 */
export async function findIds(airlock: Airlock, kind: Kind, given: unknown): Promise<unknown> {
  if (typeof given === "string") return findId(airlock, kind, given);
  if (!Array.isArray(given)) return given;
  return Promise.all(given.map((word: string) => findId(airlock, kind, word)));
}
