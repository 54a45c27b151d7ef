import { UsageError } from "./exit.ts";

/**
 * Finds the one item with this id or name.
 *
 * @param list The command that shows them.
 */
export function findOne<T extends { id: string; name: string }>(
  all: readonly T[],
  given: string,
  what: string,
  list: string,
): T {
  const [found, ...more] = all.filter(({ id, name }) => id === given || name === given);
  if (!found) throw new UsageError(`there is no ${what} ${given}; ${list} shows them`);
  if (more.length === 0) return found;
  throw new UsageError(
    `${more.length + 1} have the name ${given}: say the id, which ${list} shows`,
  );
}
