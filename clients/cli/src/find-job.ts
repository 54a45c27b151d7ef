import type { Airlock } from "../../typescript/src/index.ts";
import { UsageError } from "./exit.ts";

/** How many of the newest jobs are searched: as many as one page has. */
const searched = 100;
const partOfId = /^[0-9a-f-]{4,35}$/;

/** The id of the job that a word names: an id, or the end of one of the newest jobs. */
async function findJob(airlock: Airlock, word: string): Promise<string> {
  if (!partOfId.test(word)) return word;
  const { items } = await airlock.api.listExecutions({ limit: searched, fields: "status" });
  const ids = items.map(({ execution_id }) => execution_id);
  return chooseByEnd(ids, word);
}

/**
 * The one id that ends with these characters. Ids of one minute begin alike.
 *
 * @throws UsageError if none does, or several do.
 */
export function chooseByEnd(ids: readonly string[], end: string): string {
  const found = ids.filter((id) => id.endsWith(end));
  const [first] = found;
  if (first !== undefined && found.length === 1) return first;
  throw new UsageError(
    first === undefined
      ? `none of the newest ${searched} jobs has an id that ends with ${end}; airlock ps shows ids`
      : `the ids of ${found.length} jobs end with ${end}: give more of it`,
  );
}

/**
 * The ids of what the user gave as a command's argument: one job, several or none.
 *
 * @throws UsageError as chooseByEnd.
 */
export async function findJobs(airlock: Airlock, given: unknown): Promise<unknown> {
  if (typeof given === "string") return findJob(airlock, given);
  if (!Array.isArray(given)) return given;
  return Promise.all(given.map((word: string) => findJob(airlock, word)));
}
