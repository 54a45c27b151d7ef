import type { ChangeSignal } from "../waiting/change-signal.ts";
import { findImage, type ImageStore } from "./images.ts";

/** Knows which of the images that the API asks about are on the engine. */
export type Inventory = {
  readonly present: () => readonly string[];
  /**
   * Takes the list of images that the API asks about. Returns false if some of them are new: they
   * have been looked up now, but the API does not know the result yet.
   */
  readonly want: (references: readonly string[], signal: AbortSignal) => Promise<boolean>;
  /** Looks up every image again. */
  readonly refresh: (signal: AbortSignal) => Promise<void>;
  /** Notes an image that has just been made. */
  readonly add: (reference: string) => void;
};

export function createInventory(
  store: Pick<ImageStore, "imageId" | "labelledImageId">,
  changes: ChangeSignal,
): Inventory {
  /** Images built here; they are looked up even before the API asks about them. */
  const made: string[] = [];
  let wanted: readonly string[] = [];
  let present: readonly string[] = [];

  function set(found: readonly string[]): void {
    const isSame = found.length === present.length && found.every((one) => present.includes(one));
    present = found;
    if (!isSame) changes.notify();
  }

  async function refresh(signal: AbortSignal): Promise<void> {
    const asked = wanted;
    const ids = await Promise.all(asked.map((one) => findImage(store, one, signal)));
    set(asked.filter((_one, n) => ids[n] !== null));
  }

  async function want(references: readonly string[], signal: AbortSignal): Promise<boolean> {
    const isKnown = references.every((one) => wanted.includes(one));
    wanted = [...new Set([...references, ...made])];
    // If the engine fails now, the engine monitor calls `refresh` once it is back.
    if (!isKnown) await refresh(signal).catch(() => {});
    return isKnown;
  }

  function add(reference: string): void {
    made.push(reference);
    wanted = [...new Set([...wanted, reference])];
    set([...new Set([...present, reference])]);
  }

  return { present: () => present, want, refresh, add };
}
