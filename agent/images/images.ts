import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import type { Engine } from "../engine/engine.ts";
import type { ImageCalls, ImageEntry, RegistryAuth } from "../engine/images.ts";
import { JobRefusal } from "../host/policy.ts";
import { EngineError } from "../sandbox/sandbox.ts";
import { abortable, type ChangeSignal } from "../waiting.ts";

export type Images = ReturnType<typeof createImages>;
export type Inventory = ReturnType<typeof createInventory>;

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
) {
  const lookups = new Map<string, Promise<string>>();

  /**
   * The id, `sha256:…`, of the image to use for `reference`: that image, an image labelled as its
   * stand-in, or the one pulled from a registry.
   *
   * @throws JobRefusal if there is none; EngineError; the signal's reason.
   */
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

  /** Call this when the engine no longer has the image: the next `resolve` looks it up again. */
  function forget(reference: string): void {
    lookups.delete(reference);
  }

  /**
   * The names of `reference`: itself; if it may be an id, the image's id and all names that the
   * engine has for it.
   *
   * @throws EngineError; the signal's reason.
   */
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
export function createInventory(
  store: Pick<ImageStore, "imageId" | "labelledImageId">,
  changes: ChangeSignal,
) {
  /** Images built here; they are looked up even before the API asks about them. */
  const made: string[] = [];
  let asked: readonly string[] | null = null;
  let wanted: readonly string[] = [];
  let present: readonly string[] = [];

  function set(found: readonly string[]): void {
    const isSame = found.length === present.length && found.every((one) => present.includes(one));
    present = found;
    if (!isSame) changes.notify();
  }

  /** Looks up every image again. */
  async function refresh(signal: AbortSignal): Promise<void> {
    const [sought, before] = [wanted, present];
    const ids = await Promise.all(sought.map((one) => findImage(store, one, signal)));
    // The engine may have been asked before it had these.
    const added = present.filter((one) => !before.includes(one));
    set([...new Set([...sought.filter((_one, n) => ids[n] !== null), ...added])]);
  }

  /**
   * Takes the list of images that the API asks about. Returns false if some of them are new: they
   * have been looked up now, but the API does not know the result yet.
   */
  async function want(references: readonly string[], signal: AbortSignal): Promise<boolean> {
    asked = references;
    const isKnown = references.every((one) => wanted.includes(one));
    wanted = [...new Set([...references, ...made])];
    // If the engine fails now, the engine monitor calls `refresh` once it is back.
    if (!isKnown) await refresh(signal).catch(() => {});
    return isKnown;
  }

  /** Notes an image that has just been made. */
  function add(reference: string): void {
    made.push(reference);
    wanted = [...new Set([...wanted, reference])];
    set([...new Set([...present, reference])]);
  }

  /** The images that the API asks about; null before it has told. */
  const listed = (): readonly string[] | null => asked;
  return { present: () => present, want, refresh, add, asked: listed };
}

/** Label of an image that stands in for the image that it names. */
export const STANDS_IN_FOR = "io.airlock.stands-in-for";

/** Labels of images that agents make: the key of a build's step, the base of a furnished image, the name of a built one. */
export const STEP = "io.airlock.step";
export const FURNISHED = "io.airlock.furnished";
export const REPOSITORY = "io.airlock.repository";
/** Whose packages are in it, if the job type is one that a tenant has made. */
export const TENANT = "io.airlock.tenant";

const DAY_MS = 86_400_000;
/** Longer than from the end of a build's step to the start of the next. Another agent may be the one that builds. */
const FRESH_MS = 15 * 60_000;

type CollectorDeps = {
  readonly imageCalls: Pick<ImageCalls, "imageList" | "removeName">;
  /** Images that the API asks about; null before it has been asked. */
  readonly needed: () => readonly string[] | null;
  /** The furnished images that containers of this process start on. */
  readonly used: () => Promise<readonly string[]>;
  /** Bytes of the images that could be removed. */
  readonly maxBytes: number;
  readonly nowMs: () => number;
  readonly log: Logger;
};

/**
 * Removes images that agents have made and nothing needs: furnished ones at once; steps of builds, and builds that were
 * replaced a day ago, the oldest first, while they take more than the limit. Another API may still use a build that was
 * replaced later. Builds of tenants go sooner, with their names: all APIs know the same job types of tenants.
 *
 * @throws EngineError; the signal's reason.
 */
export async function collectImages(deps: CollectorDeps, signal: AbortSignal): Promise<void> {
  const { imageCalls, maxBytes, log } = deps;
  const needed = deps.needed();
  if (needed === null) return;
  const used = await deps.used();
  const images = new Map((await imageCalls.imageList(signal)).map((one) => [one.id, one]));
  const kept = new Set<string>();
  const keep = (id: string): void => {
    for (let at = images.get(id); at && !kept.has(at.id); at = images.get(at.parentId)) {
      kept.add(at.id);
    }
  };
  const isUnused = ({ id, labels }: ImageEntry): boolean =>
    !!labels[FURNISHED] && !used.includes(id);
  const isFree = (image: ImageEntry): boolean => {
    const { id, labels, names, createdMs } = image;
    const base = labels[FURNISHED];
    if (base) {
      const its = images.get(base);
      if (names.length === 0 || its === undefined) return isUnused(image);
      if (its.names.length > 0 || needed.includes(base)) return false;
      return isUnused(image) || isFree(its);
    }
    const repository = labels[REPOSITORY];
    const isOfTenant = !!labels[TENANT];
    if ((names.length > 0 && !isOfTenant) || needed.includes(id)) return false;
    if (!repository || isOfTenant)
      return (!!labels[STEP] || isOfTenant) && deps.nowMs() - createdMs >= FRESH_MS;
    return [...images.values()].some(
      (other) =>
        other.labels[REPOSITORY] === repository &&
        other.createdMs > createdMs &&
        deps.nowMs() - other.createdMs >= DAY_MS,
    );
  };
  for (const image of images.values()) if (!isFree(image)) keep(image.id);
  for (;;) {
    const free = [...images.values()].filter(({ id }) => !kept.has(id));
    const bytes = free.reduce(
      (sum, { sizeBytes, parentId }) => sum + sizeBytes - (images.get(parentId)?.sizeBytes ?? 0),
      0,
    );
    const isParent = new Set([...images.values()].map(({ parentId }) => parentId));
    const [end] = free
      .filter((image) => !isParent.has(image.id) && (bytes > maxBytes || isUnused(image)))
      .sort((a, b) => a.createdMs - b.createdMs);
    if (end === undefined) return;
    try {
      await imageCalls.removeName(end.id, signal);
      images.delete(end.id);
      log.info("removed the image {id}, which nothing needs any more", { id: end.id });
    } catch (error) {
      // A container uses it.
      if (!(error instanceof EngineError) || error.transient) throw error;
      keep(end.id);
    }
  }
}
