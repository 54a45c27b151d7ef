import { describeError } from "../shared/log-line.ts";
import { abortable } from "./abortable.ts";
import { JobRefusal } from "./job-refusal.ts";
import { EngineError } from "./sandbox/types.ts";

export type Images = {
  /**
   * The id, `sha256:…`, of the image that serves as `reference`: itself, an image labelled as its
   * stand-in, or what a registry gives.
   *
   * @throws JobRefusal where there is none; EngineError; the signal's reason.
   */
  readonly resolve: (reference: string, signal: AbortSignal) => Promise<string>;
  /** The engine no longer has the image: the next `resolve` looks again. */
  readonly forget: (reference: string) => void;
};

/** The engine's store of images. */
export type ImageStore = {
  /** The id of the image, null where there is none. */
  readonly idOf: (reference: string, signal: AbortSignal) => Promise<string | null>;
  /** The id of an image with the label `name=value`, null where there is none. */
  readonly idOfLabelled: (
    name: string,
    value: string,
    signal: AbortSignal,
  ) => Promise<string | null>;
  readonly pull: (reference: string, signal: AbortSignal) => Promise<void>;
};

const STANDS_IN_FOR = "io.airlock.stands-in-for";

/** Longer than any job waits for its start. */
const LOOKUP_TIMEOUT_MS = 15 * 60_000;

/** Lookups are shared and live until `end`: a pull that outlasts one job serves the next. */
export function createImages(store: ImageStore, end: AbortSignal): Images {
  const lookups = new Map<string, Promise<string>>();

  async function resolve(reference: string, signal: AbortSignal): Promise<string> {
    const lookup = lookups.get(reference) ?? start(reference);
    return abortable(lookup, signal);
  }

  function start(reference: string): Promise<string> {
    const bound = AbortSignal.any([end, AbortSignal.timeout(LOOKUP_TIMEOUT_MS)]);
    const lookup = lookUp(store, reference, bound);
    lookups.set(reference, lookup);
    lookup.catch(() => forget(reference));
    return lookup;
  }

  function forget(reference: string): void {
    lookups.delete(reference);
  }

  return { resolve, forget };
}

async function lookUp(store: ImageStore, reference: string, signal: AbortSignal): Promise<string> {
  const local =
    (await store.idOf(reference, signal)) ??
    (await store.idOfLabelled(STANDS_IN_FOR, reference, signal));
  if (local !== null) return local;
  try {
    await store.pull(reference, signal);
  } catch (error) {
    if (signal.aborted || (error instanceof EngineError && error.code === "unavailable")) {
      throw error;
    }
    throw notFound(reference, describeError(error), error);
  }
  const pulled = await store.idOf(reference, signal);
  if (pulled === null) throw notFound(reference, "pulled, yet not there");
  return pulled;
}

function notFound(reference: string, reason: string, cause?: unknown): JobRefusal {
  return new JobRefusal(
    "docker_error",
    `image ${reference} is not on the agent's host and cannot be pulled: ${reason}`,
    { cause },
  );
}
