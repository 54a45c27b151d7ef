import { Readable } from "node:stream";
import type { Logger } from "@logtape/logtape";
import pRetry from "p-retry";
import { describeError } from "../../shared/log-line.ts";
import type { EngineHealth } from "../../shared/wire/health.ts";
import type { ImageSource } from "../../shared/wire/job-types.ts";
import type { AgentIdentity, LeasedBuild } from "../../shared/wire/leases.ts";
import type { Client, RetryTimes } from "../client/client.ts";
import { ApiError } from "../client/http.ts";
import type { ImageCalls, NamedImage, RegistryAuth } from "../engine/images.ts";
import type { SpoolDir } from "../host/files.ts";
import type { Admission } from "../host/policy.ts";
import { EngineError } from "../sandbox/sandbox.ts";
import { backoffMs, type ChangeSignal, type Clock } from "../waiting.ts";
import { otherIds, packImage, unpackImage } from "./archive.ts";
import { furnishedName } from "./furnish.ts";
import type { Inventory } from "./images.ts";

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

/** Fetches images that other hosts have built, until `end`. A failed fetch is repeated after growing waits. */
export function createImageFetcher(deps: FetcherDeps, end: AbortSignal) {
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

  /** Takes the list of images that the API wants here, and fetches the missing ones, one at a time. */
  function want(references: readonly string[]): void {
    wanted = references;
    const forgotten = [...failures.keys()].filter((image) => !references.includes(image));
    for (const image of forgotten) failures.delete(image);
    if (forgotten.length > 0) noteMissing();
    if (isBusy || !wanted.some(isDue)) return;
    isBusy = true;
    void work().finally(() => (isBusy = false));
  }

  /** The wanted images that could not be fetched, with the reason. A new array after each change. */
  const unfetched = (): Missing => missing;
  return { want, missing: unfetched };
}

/** The image is not for this agent, or no source has it: not reported to the operator. */
class NotHere extends Error {}

type FetchDeps = {
  readonly agent: AgentIdentity;
  readonly admission: Pick<Admission, "admitImage">;
  readonly client: Pick<Client, "imageSource" | "imageArchive">;
  readonly imageCalls: Pick<
    ImageCalls,
    "architecture" | "imageArchitecture" | "imageId" | "load" | "pull" | "removeName" | "tag"
  >;
  readonly registry: Registry;
  readonly maxImageBytes: number;
  readonly log: Logger;
};

/** This host can never use the image; the message says why. */
class UnfitImage extends Error {
  override name = "UnfitImage";
}

/**
 * Fetches one image that another agent has built, from the source that the API names.
 *
 * @param makeRoom called before the transfer; throws if there is no room.
 * @returns false if the image is not for this agent, or only the host that built it has it.
 * @throws UnfitImage; ImageArchiveError; JobRefusal; EngineError; ApiError; the signal's reason.
 */
async function fetchImage(
  deps: FetchDeps,
  image: string,
  makeRoom: () => Promise<void>,
  signal: AbortSignal,
): Promise<boolean> {
  const { agent, admission, client, imageCalls, log } = deps;
  if ((await imageCalls.imageId(image, signal)) !== null) return true;
  const source = await client.imageSource(image, signal).catch((error: unknown) => {
    if (error instanceof ApiError && error.kind === "rejected") return null;
    throw error;
  });
  if (source === null || source.image !== image) return false;
  const hasLabels = Object.entries(source.labels).every(
    ([name, value]) => agent.labels[name] === value,
  );
  if (!hasLabels) return false;
  const name = `${FETCHED}:${image.slice("sha256:".length)}`;
  const names = [image, source.registry_ref ?? name];
  admission.admitImage(source.job_type, names);
  await makeRoom();
  log.info("fetching the image {image} of {jobType}", { image, jobType: source.job_type });
  await (source.registry_ref === null
    ? load(deps, image, name, signal)
    : pull(deps, source, source.registry_ref, name, signal));
  log.info("image {image} of {jobType} is here", { image, jobType: source.job_type });
  return true;
}

async function load(
  { client, imageCalls, maxImageBytes }: FetchDeps,
  image: string,
  name: string,
  signal: AbortSignal,
): Promise<void> {
  const bounds = { maxBytes: maxImageBytes, architecture: await imageCalls.architecture(signal) };
  const archive = await client.imageArchive(image, signal);
  const tar = Readable.from(unpackImage(archive, image, name, bounds), { objectMode: false });
  try {
    await imageCalls.load(tar, signal);
  } finally {
    tar.destroy();
    archive.destroy();
  }
  await verifyImage(imageCalls, name, image, signal);
}

/**
 * Pulls by digest, which moves no tag. The name by digest stays, because an operator's
 * `agent_images` may list it.
 */
async function pull(
  { imageCalls, registry }: FetchDeps,
  { image }: ImageSource,
  reference: string,
  name: string,
  signal: AbortSignal,
): Promise<void> {
  const before = await imageCalls.imageId(reference, signal);
  if (before === null) {
    await imageCalls.pull(reference, signal, authFor(registry, reference));
    await verifyImage(imageCalls, reference, image, signal);
  } else if (before !== image) throw new UnfitImage(`${reference} is ${before}, not ${image}`);
  const [repository = "", tag = ""] = name.split(":");
  await imageCalls.tag(image, repository, tag, signal);
}

/**
 * Removes the image again if this engine gave it another id, as an engine with containerd's image
 * store does.
 */
async function verifyImage(
  imageCalls: FetchDeps["imageCalls"],
  name: string,
  image: string,
  signal: AbortSignal,
): Promise<void> {
  const id = await imageCalls.imageId(name, signal);
  const own = await imageCalls.architecture(signal);
  const its = await imageCalls.imageArchitecture(name, signal);
  if (id === image && its === own) return;
  await imageCalls.removeName(name, signal);
  throw new UnfitImage(
    id === image
      ? `it is for ${its ?? "nothing known"}, and this host is ${own}`
      : `this engine calls it ${id ?? "nothing"}: ${otherIds}`,
  );
}

/** Repository of the names of fetched images on this host; the tag is the image's id. */
export const FETCHED = "airlock-fetched";

/** Longer than any job waits from lease to container; from then on the engine keeps the image. */
const IN_USE_MS = 15 * 60_000;

export type FetchedImages = ReturnType<typeof createFetchedImages>;

type FetchedDeps = {
  readonly imageCalls: Pick<ImageCalls, "imageNames" | "imagesNamed" | "removeName">;
  readonly maxBytes: number;
  readonly clock: Clock;
  readonly log: Logger;
  readonly repository?: string;
};

/** The images on this host's engine that other agents have built. */
export function createFetchedImages(deps: FetchedDeps) {
  const { imageCalls, maxBytes, clock, log, repository = FETCHED } = deps;
  const usedMs = new Map<string, number>();

  /**
   * Removes images, least recently used first, until their total size is within the limit. Keeps
   * those that are needed or in use.
   *
   * @returns the total size of the images that are left, in bytes; shared layers count once per
   *   image.
   * @throws EngineError; the signal's reason.
   */
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
      // What was made of it first: it holds the bytes. Its own name last: that removes the image, and until then it
      // can be found by it.
      const digests = names.filter((name) => name.includes("@"));
      const own = names.filter((name) => name.includes(`${repository}:`));
      const made = furnishedName(id);
      for (const name of [made, ...digests, ...own]) await imageCalls.removeName(name, signal);
    } catch (error) {
      if (!(error instanceof EngineError) || error.transient) throw error;
      log.debug("image {id} stays: {reason}", { id, reason: describeError(error) });
      return false;
    }
    usedMs.delete(id);
    log.info("removed the image {id}, which no job type needs any more", { id });
    return true;
  }

  /** Notes that a job is about to run on this image. */
  const used = (image: string): void => void usedMs.set(image, clock.nowMs());
  return { used, prune };
}

export type ShareDeps = {
  readonly client: Pick<Client, "buildImage">;
  readonly imageCalls: Pick<ImageCalls, "push" | "save">;
  readonly spool: SpoolDir;
  readonly registry: Registry;
  readonly maxImageBytes: number;
  /** Retries of a push. */
  readonly times: RetryTimes;
};

/** Together about as long as a registry takes to restart. */
export const pushTimes: RetryTimes = { retries: 4, minTimeout: 1000, maxTimeout: 10_000 };

/** The registry did not accept a built image; the engine is well. */
export class PushError extends Error {
  override name = "PushError";
}

/**
 * Uploads a built image to where other agents fetch it, as the lease says. If it cannot be stored
 * in the artifact store, it stays on this host and `say` gets the reason; the build still succeeds.
 *
 * @returns the digest of its manifest in the registry; null without a registry.
 * @throws PushError; ApiError if the agent or its lease is refused; the signal's reason.
 */
export async function shareImage(
  deps: ShareDeps,
  build: LeasedBuild,
  image: string,
  say: (words: string) => void,
  signal: AbortSignal,
): Promise<string | null> {
  if (build.share === "registry") return push(deps, build, say, signal);
  if (build.share === "store" && deps.maxImageBytes > 0) {
    await upload(deps, build, image, say, signal);
  }
  return null;
}

async function push(
  { imageCalls, registry, times }: ShareDeps,
  { repository, tags }: LeasedBuild,
  say: (words: string) => void,
  signal: AbortSignal,
): Promise<string | null> {
  let digest: string | null = null;
  for (const tag of tags) {
    const name = `${repository}:${tag}`;
    try {
      digest = await pRetry(
        () => imageCalls.push(repository, tag, signal, authFor(registry, name)),
        { ...times, signal, onFailedAttempt: ({ error }) => say(`Not pushed: ${error.message}\n`) },
      );
    } catch (error) {
      signal.throwIfAborted();
      throw new PushError(`${name} could not be pushed: ${describeError(error)}`, { cause: error });
    }
    say(`Pushed ${name} (${digest})\n`);
  }
  return digest;
}

async function upload(
  { client, imageCalls, spool, maxImageBytes }: ShareDeps,
  { lease_id, share_max_bytes }: LeasedBuild,
  image: string,
  say: (words: string) => void,
  signal: AbortSignal,
): Promise<void> {
  await using folder = spool.folder(lease_id);
  try {
    const tar = await imageCalls.save(image, signal);
    const maxBytes = Math.min(maxImageBytes, share_max_bytes);
    const archive = await packImage(tar, image, folder.path, maxBytes);
    await client.buildImage(lease_id, archive, signal);
    say(`Stored the image for other agents: ${archive.sizeBytes} bytes\n`);
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof ApiError && (error.endsAgent || error.kind === "lease_lost")) throw error;
    say(`The image stays on this host: ${describeError(error)}\n`);
  }
}

export type Registry = {
  /** Such as "registry.example:5000/team"; undefined if none is configured. */
  readonly name: string | undefined;
  readonly auth: RegistryAuth | undefined;
};

/**
 * The credentials for an image, only if it is in the agent's configured registry: the API must not
 * send them to another one.
 */
export function authFor({ name, auth }: Registry, reference: string): RegistryAuth | undefined {
  return name !== undefined && reference.startsWith(`${name}/`) ? auth : undefined;
}
