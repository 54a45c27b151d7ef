import { describeError } from "../../shared/log-line.ts";
import type { Engine } from "../engine/engine.ts";
import type { RegistryAuth } from "../engine/images.ts";
import { JobRefusal } from "../host/policy.ts";
import { abortable, type ChangeSignal } from "../waiting.ts";

export type Images = {
  /**
   * The id, `sha256:…`, of the image to use for `reference`: that image, an image labelled as its
   * stand-in, or the one pulled from a registry.
   *
   * @throws JobRefusal if there is none; EngineError; the signal's reason.
   */
  readonly resolve: (reference: string, signal: AbortSignal) => Promise<string>;
  /**
   * The names of `reference`: itself; if it may be an id, the image's id and all names that the
   * engine has for it.
   *
   * @throws EngineError; the signal's reason.
   */
  readonly namesOf: (reference: string, signal: AbortSignal) => Promise<string[]>;
  /** Call this when the engine no longer has the image: the next `resolve` looks it up again. */
  readonly forget: (reference: string) => void;
};

/** The engine's store of images. */
export type ImageStore = Pick<Engine, "imageId" | "imageNames" | "labelledImageId" | "pull">;

/** Engines accept the beginning of an id. */
const ID = /^(sha256:)?[0-9a-f]+$/i;

/** Longer than any job waits for its start. */
const LOOKUP_TIMEOUT_MS = 15 * 60_000;

/**
 * Lookups are shared and last until `end`: a pull that takes longer than one job's start-up serves
 * the next job.
 *
 * @param used told of each image that a job is about to run on.
 */
export function createImages(
  store: ImageStore,
  end: AbortSignal,
  authFor: (reference: string) => RegistryAuth | undefined = () => undefined,
  used: (reference: string) => void = () => {},
): Images {
  const lookups = new Map<string, Promise<string>>();

  async function resolve(reference: string, signal: AbortSignal): Promise<string> {
    used(reference);
    const lookup = lookups.get(reference) ?? start(reference);
    return abortable(lookup, signal);
  }

  function start(reference: string): Promise<string> {
    const bound = AbortSignal.any([end, AbortSignal.timeout(LOOKUP_TIMEOUT_MS)]);
    const lookup = lookUp(store, reference, bound, authFor(reference));
    lookups.set(reference, lookup);
    lookup.catch(() => forget(reference));
    return lookup;
  }

  function forget(reference: string): void {
    lookups.delete(reference);
  }

  async function namesOf(reference: string, signal: AbortSignal): Promise<string[]> {
    return ID.test(reference) ? store.imageNames(reference, signal) : [reference];
  }

  return { resolve, namesOf, forget };
}

/** The id of the engine's image to use for `reference`, or null. */
async function findImage(
  store: Pick<ImageStore, "imageId" | "labelledImageId">,
  reference: string,
  signal: AbortSignal,
): Promise<string | null> {
  return (
    (await store.imageId(reference, signal)) ??
    (await store.labelledImageId(STANDS_IN_FOR, reference, signal))
  );
}

async function lookUp(
  store: ImageStore,
  reference: string,
  signal: AbortSignal,
  auth: RegistryAuth | undefined,
): Promise<string> {
  const local = await findImage(store, reference, signal);
  if (local !== null) return local;
  if (reference.startsWith("sha256:")) throw goneImage(reference);
  const failure = await store.pull(reference, signal, auth).then(
    () => new Error("it is gone again"),
    (error: unknown) => error,
  );
  // Throws if the pull failed because the engine is gone.
  const pulled = await store.imageId(reference, signal);
  if (pulled === null) throw notFound(reference, failure);
  return pulled;
}

function goneImage(digest: string): JobRefusal {
  return new JobRefusal(
    "docker_error",
    `The image ${digest} is no longer on the agent's host: build the job type again.`,
  );
}

function notFound(reference: string, cause: unknown): JobRefusal {
  const reason = describeError(cause);
  return new JobRefusal(
    "docker_error",
    `Image ${reference} is not on the agent's host and cannot be pulled: ${reason}`,
    { cause },
  );
}

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

/** Label of an image that stands in for the image that it names. */
export const STANDS_IN_FOR = "io.airlock.stands-in-for";
