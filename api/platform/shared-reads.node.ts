import type { Deps } from "../deps.ts";

/**
 * Joins equal reads that are asked for in the same tick of the event loop, as by everybody whom one
 * notification has woken. A read that has begun is not joined: it may miss what has just been written.
 */
export function sharedReads(): Deps["shareRead"] {
  const waiting = new Map<string, Promise<unknown>>();
  return <T>(key: string, read: () => Promise<T>): Promise<T> => {
    const asked = waiting.get(key) as Promise<T> | undefined;
    if (asked) return asked;
    const reading = new Promise<void>((resolve) => setImmediate(resolve)).then(() => {
      waiting.delete(key);
      return read();
    });
    waiting.set(key, reading);
    return reading;
  };
}
