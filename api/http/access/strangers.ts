import { AppError } from "../../errors.ts";

/** Resolution of the recorded time of a key's or token's last use. */
export const usedEveryMs = 60_000;

/** A holder that was found is cached for this long, so that a busy client's requests need no query each. */
const believedMs = 1000;
const believedMax = 10_000;

/**
 * Looks up the holders of keys or tokens by their hash. One that became void is refused within a second.
 * Each client address may present a limited number of unknown ones. Known ones at that address are not
 * affected. A look-up without an address is of a key that was known before, and is not limited.
 *
 * @param voidAt When a holder's key expires.
 */
export function holders<H extends object>(
  now: () => number,
  what: string,
  find: (hash: string) => Promise<H | undefined>,
  voidAt: (holder: H) => number = () => Infinity,
): (hash: string, client?: string) => Promise<H | undefined> {
  const believed = new Map<string, { readonly holder: H; readonly at: number }>();
  const strangers = createStrangerLimit(now, what);
  return async (hash, client) => {
    const known = believed.get(hash);
    if (known && isFresh(known.at, voidAt(known.holder), now())) return known.holder;
    if (!known && client !== undefined) strangers.refuse(client);
    const holder = await find(hash);
    if (!holder) {
      believed.delete(hash);
      if (client !== undefined) strangers.count(client);
      return undefined;
    }
    if (believed.size >= believedMax) believed.clear();
    believed.set(hash, { holder, at: now() });
    return holder;
  };
}

/** False for a time in the future: the clock was set back. */
function isFresh(at: number, voidAt: number, now: number): boolean {
  return at <= now && now < at + believedMs && now < voidAt;
}

const unknownPerMinute = 30;
const minuteMs = 60_000;

/** Counts the unknown keys or tokens of each client address, in this process. */
function createStrangerLimit(now: () => number, what: string) {
  const windows = new Map<string, { count: number; readonly endsAt: number }>();
  return {
    /** @throws AppError 429 for a client that has presented too many. */
    refuse(client: string): void {
      const window = windows.get(client);
      if (!window || window.endsAt <= now() || window.count < unknownPerMinute) return;
      throw new AppError(
        "rate_limited",
        `More than ${unknownPerMinute} unknown ${what} in a minute; wait for the seconds that Retry-After says.`,
        {},
        { "Retry-After": String(Math.ceil((window.endsAt - now()) / 1000)) },
      );
    },
    count(client: string): void {
      const window = windows.get(client);
      if (window && window.endsAt > now()) window.count += 1;
      else {
        if (windows.size >= believedMax) windows.clear();
        windows.set(client, { count: 1, endsAt: now() + minuteMs });
      }
    },
  };
}
