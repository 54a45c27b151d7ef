import type { Context } from "hono";

/** The key or token in the header Authorization. */
export function bearerToken(c: Context): string | undefined {
  return /^Bearer +(\S+)$/i.exec(c.req.header("Authorization") ?? "")?.[1];
}

/**
 * The last place of a hash in a list; -1 if it is not there. Compares in constant time, so that the time
 * reveals nothing about a key.
 */
export function placeOf(accepted: readonly string[], given: string): number {
  let place = -1;
  for (const [at, hash] of accepted.entries()) {
    let difference = 0;
    for (let i = 0; i < hash.length; i++) difference |= hash.charCodeAt(i) ^ given.charCodeAt(i);
    if (difference === 0) place = at;
  }
  return place;
}
