import type { ChangeSignal } from "../waiting/change-signal.ts";
import { findImage, type ImageStore } from "./images.ts";

/** Which of the images that the API asks about the engine has. */
export type Inventory = {
  readonly present: () => readonly string[];
  /**
   * Takes in what the API asks about. False where some of it is new, and has now been looked for:
   * the API does not know of it yet.
   */
  readonly want: (references: readonly string[], signal: AbortSignal) => Promise<boolean>;
  /** Looks again for everything that is asked about. */
  readonly refresh: (signal: AbortSignal) => Promise<void>;
  /** Notes an image that has just been made. */
  readonly add: (reference: string) => void;
};

export function createInventory(
  store: Pick<ImageStore, "imageId" | "labelledImageId">,
  changes: ChangeSignal,
): Inventory {
  /** Made here: looked for from then on, whether or not the API has heard of them yet. */
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
    // An engine that fails now is looked after by its watch, which also refreshes.
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
