import { createHash } from "node:crypto";

/** What stands for a tenant in names on disk: 8 hex digits. */
export function ownerOf(tenant: string): string {
  return createHash("sha256").update(tenant).digest("hex").slice(0, 8);
}

/** Something on disk that was made for one tenant's jobs. */
export interface Kept {
  readonly owner: string;
  readonly bytes: number;
}

/**
 * What to remove until the rest fits: again and again the least recently used of the owner that holds most, so
 * that no tenant displaces what another has kept in its own part.
 *
 * @param kept the least recently used first.
 * @param mayGo whether it can be removed; what cannot counts as held.
 */
export function toEvict<T extends Kept>(
  kept: readonly T[],
  maxBytes: number,
  mayGo: (one: T) => boolean = () => true,
): T[] {
  const held = new Map<string, number>();
  for (const { owner, bytes } of kept) held.set(owner, (held.get(owner) ?? 0) + bytes);
  let total = [...held.values()].reduce((sum, bytes) => sum + bytes, 0);
  const free = kept.filter(mayGo);
  const gone: T[] = [];
  while (total > maxBytes && free.length > 0) {
    const most = Math.max(...free.map(({ owner }) => held.get(owner)!));
    const at = free.findIndex(({ owner }) => held.get(owner) === most);
    const [one] = free.splice(at, 1);
    total -= one!.bytes;
    held.set(one!.owner, most - one!.bytes);
    gone.push(one!);
  }
  return gone;
}
