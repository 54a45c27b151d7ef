import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import type { Clock } from "../waiting/clock.ts";
import type { ImageCalls, NamedImage } from "../container/image-calls.ts";
import { EngineError } from "../sandbox/types.ts";

/** Repository of the names that fetched images get on this host, each by its id. */
export const FETCHED = "airlock-fetched";

/** Longer than any job waits between its lease and its container, which the engine then heeds. */
const IN_USE_MS = 15 * 60_000;

/** The images on this host's engine that other agents have built. */
export type FetchedImages = {
  /** A job is about to run on this image. */
  readonly used: (image: string) => void;
  /**
   * Removes images, the least recently used first, until all together are within the bound: none
   * that is needed or in use.
   *
   * @returns bytes that are left, the bytes that images share counted for each.
   * @throws EngineError; the signal's reason.
   */
  readonly prune: (needed: readonly string[], signal: AbortSignal) => Promise<number>;
};

export type FetchedDeps = {
  readonly imageCalls: Pick<ImageCalls, "imageNames" | "imagesNamed" | "removeName">;
  readonly maxBytes: number;
  readonly clock: Clock;
  readonly log: Logger;
  readonly repository?: string;
};

export function createFetchedImages(deps: FetchedDeps): FetchedImages {
  const { imageCalls, maxBytes, clock, log, repository = FETCHED } = deps;
  const usedMs = new Map<string, number>();

  async function prune(needed: readonly string[], signal: AbortSignal): Promise<number> {
    const images = await imageCalls.imagesNamed(repository, signal);
    let bytes = images.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    const ends = images
      .filter((image) => !needed.includes(image.id) && !isInUse(image))
      // Of those that were not used since this agent began, the oldest first.
      .sort((a, b) => lastUse(a) - lastUse(b) || a.createdMs - b.createdMs);
    for (const image of ends) {
      if (bytes <= maxBytes) break;
      if (await remove(image, signal)) bytes -= image.sizeBytes;
    }
    return bytes;
  }

  const lastUse = ({ id }: NamedImage): number => usedMs.get(id) ?? -Infinity;
  const isInUse = (image: NamedImage): boolean => clock.nowMs() - lastUse(image) < IN_USE_MS;

  /** False where the engine keeps it: a container has it. */
  async function remove({ id }: NamedImage, signal: AbortSignal): Promise<boolean> {
    try {
      const names = await imageCalls.imageNames(id, signal);
      // Its own name last: with that it goes, and is found until then.
      const digests = names.filter((name) => name.includes("@"));
      const own = names.filter((name) => name.includes(`${repository}:`));
      for (const name of [...digests, ...own]) await imageCalls.removeName(name, signal);
    } catch (error) {
      if (!(error instanceof EngineError) || error.transient) throw error;
      log.debug("image {id} stays: {reason}", { id, reason: describeError(error) });
      return false;
    }
    usedMs.delete(id);
    log.info("removed the image {id}, which no job type needs any more", { id });
    return true;
  }

  return { used: (image) => void usedMs.set(image, clock.nowMs()), prune };
}
