import { describeError } from "../../shared/log-line.ts";
import { abortable } from "../waiting/abortable.ts";
import { JobRefusal } from "../policy/refusal.ts";
import { STANDS_IN_FOR } from "./stand-in.ts";
import type { Engine } from "../engine/engine.ts";
import type { RegistryAuth } from "../engine/image-calls.ts";

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
 */
export function createImages(
  store: ImageStore,
  end: AbortSignal,
  authFor: (reference: string) => RegistryAuth | undefined = () => undefined,
): Images {
  const lookups = new Map<string, Promise<string>>();

  async function resolve(reference: string, signal: AbortSignal): Promise<string> {
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
export async function findImage(
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
