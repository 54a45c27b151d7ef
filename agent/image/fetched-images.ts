import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import type { Clock } from "../waiting/clock.ts";
import type { ImageCalls, NamedImage } from "../engine/image-calls.ts";
import { EngineError } from "../sandbox/errors.ts";

/** Repository of the names of fetched images on this host; the tag is the image's id. */
export const FETCHED = "airlock-fetched";

/** Longer than any job waits from lease to container; from then on the engine keeps the image. */
const IN_USE_MS = 15 * 60_000;

/** The images on this host's engine that other agents have built. */
export type FetchedImages = {
  /** Notes that a job is about to run on this image. */
  readonly used: (image: string) => void;
  /**
   * Removes images, least recently used first, until their total size is within the limit. Keeps
   * those that are needed or in use.
   *
   * @returns the total size of the images that are left, in bytes; shared layers count once per
   *   image.
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
      // Images that were not used since this agent started sort by age, oldest first.
      .sort((a, b) => lastUse(a) - lastUse(b) || a.createdMs - b.createdMs);
    for (const image of ends) {
      if (bytes <= maxBytes) break;
      if (await remove(image, signal)) bytes -= image.sizeBytes;
    }
    return bytes;
  }

  const lastUse = ({ id }: NamedImage): number => usedMs.get(id) ?? -Infinity;
  const isInUse = (image: NamedImage): boolean => clock.nowMs() - lastUse(image) < IN_USE_MS;

  /** False if the engine keeps the image because a container uses it. */
  async function remove({ id }: NamedImage, signal: AbortSignal): Promise<boolean> {
    try {
      const names = await imageCalls.imageNames(id, signal);
      // Its own name last: that removes the image, and until then it can be found by it.
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
