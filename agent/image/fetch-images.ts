import type { EngineHealth } from "../../shared/wire/health.ts";
import { describeError } from "../../shared/log-line.ts";
import { backoffMs } from "../waiting/backoff.ts";
import type { ChangeSignal } from "../waiting/change-signal.ts";
import type { Clock } from "../waiting/clock.ts";
import { type FetchDeps, fetchImage, UnfitImage } from "./fetch-image.ts";
import type { FetchedImages } from "./fetched-images.ts";
import type { Inventory } from "./inventory.ts";

/** Fetches images that other hosts have built. */
export type ImageFetcher = {
  /**
   * Takes the list of images that the API wants here, and fetches the missing ones, one at a time.
   */
  readonly want: (references: readonly string[]) => void;
  /**
   * The wanted images that could not be fetched, with the reason. A new array after each change.
   */
  readonly missing: () => Missing;
};

export type Missing = NonNullable<EngineHealth["missing_images"]>;

export type FetcherDeps = FetchDeps & {
  readonly inventory: Inventory;
  readonly fetched: Pick<FetchedImages, "prune">;
  /** Prepares an image for its first job; never rejects, unless the signal aborts. */
  readonly unpack: (image: string, signal: AbortSignal) => Promise<void>;
  readonly maxFetchedBytes: number;
  readonly changes: ChangeSignal;
  readonly clock: Clock;
};

const BUILT = /^sha256:[0-9a-f]{64}$/;
const FIRST_WAIT_MS = 2000;
const LONGEST_WAIT_MS = 5 * 60_000;
const REASON_MAX_LENGTH = 500;

type Failure = { readonly count: number; readonly againMs: number; readonly reason: string | null };

/** Fetches until `end`. A failed fetch is repeated after growing waits. */
export function createImageFetcher(deps: FetcherDeps, end: AbortSignal): ImageFetcher {
  const { inventory, changes, clock, log } = deps;
  const failures = new Map<string, Failure>();
  let wanted: readonly string[] = [];
  let missing: Missing = [];
  let isBusy = false;

  const isDue = (image: string): boolean =>
    BUILT.test(image) &&
    !inventory.present().includes(image) &&
    (failures.get(image)?.againMs ?? 0) <= clock.nowMs();

  async function work(): Promise<void> {
    for (;;) {
      const image = wanted.find(isDue);
      if (image === undefined || end.aborted) return;
      try {
        if (!(await fetchImage(deps, image, makeRoom, end))) throw new NotHere();
        await deps.unpack(image, end);
        failures.delete(image);
        noteMissing();
        inventory.add(image);
        await deps.fetched.prune(wanted, end).catch(() => {});
      } catch (error) {
        if (end.aborted) return;
        fail(image, error);
      }
    }
  }

  async function makeRoom(): Promise<void> {
    const { fetched, maxFetchedBytes } = deps;
    const bytes = await fetched.prune(wanted, end);
    if (bytes < maxFetchedBytes) return;
    throw new Error(
      `the images that are there take ${bytes} bytes, and all of them are needed (fetched_images_bytes is ${maxFetchedBytes})`,
    );
  }

  function fail(image: string, error: unknown): void {
    const count = (failures.get(image)?.count ?? 0) + 1;
    const waitMs =
      error instanceof UnfitImage ? Infinity : backoffMs(count, FIRST_WAIT_MS, LONGEST_WAIT_MS);
    const reason = error instanceof NotHere ? null : describeError(error);
    failures.set(image, { count, againMs: clock.nowMs() + waitMs, reason });
    if (reason === null) return;
    log.warn("could not fetch the image {image}: {reason}", { image, reason });
    noteMissing();
    changes.notify();
  }

  function noteMissing(): void {
    missing = [...failures].flatMap(([image, { reason }]) =>
      reason === null ? [] : { image, reason: reason.slice(0, REASON_MAX_LENGTH) },
    );
  }

  function want(references: readonly string[]): void {
    wanted = references;
    const forgotten = [...failures.keys()].filter((image) => !references.includes(image));
    for (const image of forgotten) failures.delete(image);
    if (forgotten.length > 0) noteMissing();
    if (isBusy || !wanted.some(isDue)) return;
    isBusy = true;
    void work().finally(() => (isBusy = false));
  }

  return { want, missing: () => missing };
}

/** The image is not for this agent, or no source has it: not reported to the operator. */
class NotHere extends Error {}
