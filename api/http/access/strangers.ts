import { AppError } from "../../errors.ts";
import { clientNetwork } from "./client-network.ts";

/** Resolution of the recorded time of a key's or token's last use. */
export const usedEveryMs = 60_000;

/** A holder that was found is cached for this long, so that a busy client's requests need no query each. */
const believedMs = 1000;
const believedMax = 10_000;

/** Looks up holders. */
export interface Holders<H> {
  find: (hash: string, client?: string) => Promise<H | undefined>;
  /** Call it when a key or token was made: its holder may use it at once. */
  relist: () => void;
}

export interface Register<H> {
  find: (hash: string) => Promise<H | undefined>;
  /** The hashes of all valid keys or tokens. */
  list: () => Promise<string[]>;
}

/**
 * Looks up the holders of keys or tokens by their hash. One that became void is refused within a second.
 * Each client network may present a limited number of unknown ones. Above that, only those in the list of all
 * are looked up, which is read once a second: so strangers cost few reads, and lock out nobody else at their
 * address. A look-up without an address is of a key that was known before, and is not limited.
 *
 * @param voidAt When a holder's key expires.
 */
export function holders<H extends object>(
  now: () => number,
  what: string,
  { find, list }: Register<H>,
  voidAt: (holder: H) => number = () => Infinity,
): Holders<H> {
  const believed = new Map<string, { readonly holder: H; readonly at: number }>();
  const strangers = createStrangerLimit(now, what);
  let listed = { at: -Infinity, hashes: new Set<string>() };
  const isListed = async (hash: string): Promise<boolean> => {
    const at = now();
    if (!isFresh(listed.at, Infinity, at)) listed = { at, hashes: new Set(await list()) };
    return listed.hashes.has(hash);
  };
  const look: Holders<H>["find"] = async (hash, client) => {
    const known = believed.get(hash);
    if (known && isFresh(known.at, voidAt(known.holder), now())) return known.holder;
    const network = client === undefined ? undefined : clientNetwork(client);
    const isMany = !known && network !== undefined && strangers.areMany(network);
    if (isMany && !(await isListed(hash))) throw strangers.refusal(network);
    const holder = await find(hash);
    if (!holder) {
      believed.delete(hash);
      if (network !== undefined) strangers.count(network);
      return undefined;
    }
    if (believed.size >= believedMax) believed.clear();
    believed.set(hash, { holder, at: now() });
    return holder;
  };
  return { find: look, relist: () => (listed.at = -Infinity) };
}

/** False for a time in the future: the clock was set back. */
function isFresh(at: number, voidAt: number, now: number): boolean {
  return at <= now && now < at + believedMs && now < voidAt;
}

const unknownPerMinute = 30;
const minuteMs = 60_000;

/** Counts the unknown keys or tokens of each client network, in this process. */
function createStrangerLimit(now: () => number, what: string) {
  const windows = new Map<string, { count: number; readonly endsAt: number }>();
  return {
    areMany(client: string): boolean {
      const window = windows.get(client);
      return window !== undefined && window.endsAt > now() && window.count >= unknownPerMinute;
    },
    /** 429 for a client that has presented too many. */
    refusal(client: string): AppError {
      const leftMs = windows.get(client)!.endsAt - now();
      return new AppError(
        "rate_limited",
        `More than ${unknownPerMinute} unknown ${what} in a minute; wait for the seconds that Retry-After says.`,
        {},
        { "Retry-After": String(Math.max(1, Math.ceil(leftMs / 1000))) },
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
