import type { Logger } from "@logtape/logtape";
import { Readable } from "node:stream";
import type { ImageSource } from "../shared/image.ts";
import type { AgentIdentity } from "../shared/lease.ts";
import { describeError } from "../shared/log-line.ts";
import type { Admission } from "./admission.ts";
import { ApiError } from "./api-error.ts";
import { backoffMs } from "./backoff.ts";
import type { Client } from "./client.ts";
import type { Clock } from "./clock.ts";
import type { Inventory } from "./inventory.ts";
import { authFor, type Registry } from "./registry.ts";
import type { ImageCalls } from "./sandbox/image-calls.ts";
import { unpackImage } from "./sandbox/unpack-image.ts";

export type FetchDeps = {
  readonly agent: AgentIdentity;
  readonly admission: Pick<Admission, "admitImage">;
  readonly client: Pick<Client, "imageSource" | "imageArchive">;
  readonly imageCalls: Pick<ImageCalls, "imageId" | "load" | "pull" | "removeName" | "tag">;
  readonly inventory: Inventory;
  readonly registry: Registry;
  readonly maxImageBytes: number;
  readonly clock: Clock;
  readonly log: Logger;
};

/** Built images that other hosts have and this one is to get. */
export type ImageFetcher = {
  /** Takes in what the API wants here; fetches what is missing and can be got, one at a time. */
  readonly want: (references: readonly string[]) => void;
};

/** Repository of the names that fetched images get on this host, each by its id. */
export const FETCHED = "airlock-fetched";

const BUILT = /^sha256:[0-9a-f]{64}$/;
const FIRST_WAIT_MS = 2000;
const LONGEST_WAIT_MS = 5 * 60_000;

/** Fetches until `end`. What fails is tried again, ever later. */
export function createImageFetcher(deps: FetchDeps, end: AbortSignal): ImageFetcher {
  const { inventory, clock, log } = deps;
  const failures = new Map<string, { count: number; againMs: number }>();
  let wanted: readonly string[] = [];
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
        if (await fetchImage(deps, image, end)) inventory.add(image);
        else throw new NotHere();
        failures.delete(image);
      } catch (error) {
        if (end.aborted) return;
        const count = (failures.get(image)?.count ?? 0) + 1;
        const waitMs = backoffMs(count, FIRST_WAIT_MS, LONGEST_WAIT_MS);
        failures.set(image, { count, againMs: clock.nowMs() + waitMs });
        if (error instanceof NotHere) continue;
        log.warn("image {image} is not fetched: {reason}", { image, reason: describeError(error) });
      }
    }
  }

  function want(references: readonly string[]): void {
    wanted = references;
    for (const image of failures.keys()) if (!references.includes(image)) failures.delete(image);
    if (isBusy || !wanted.some(isDue)) return;
    isBusy = true;
    void work().finally(() => (isBusy = false));
  }

  return { want };
}

/** Not for this agent, or nowhere to be got: nothing to tell the operator. */
class NotHere extends Error {}

/** @returns false where the image is not for this agent, or only its builder's host has it. */
async function fetchImage(deps: FetchDeps, image: string, signal: AbortSignal): Promise<boolean> {
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
  const archive = await client.imageArchive(image, signal);
  const tar = Readable.from(unpackImage(archive, image, name, maxImageBytes), {
    objectMode: false,
  });
  try {
    await imageCalls.load(tar, signal);
  } finally {
    tar.destroy();
    archive.destroy();
  }
  await insistOn(imageCalls, name, image, signal);
}

/** A pull by digest moves no tag; its name stays, for an operator's `agent_images`. */
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
    await insistOn(imageCalls, reference, image, signal);
  } else if (before !== image) throw new Error(`${reference} is ${before}, not ${image}`);
  const [repository = "", tag = ""] = name.split(":");
  await imageCalls.tag(image, repository, tag, signal);
}

/** Takes back an image that this engine gave another id, as one with containerd's store would. */
async function insistOn(
  imageCalls: FetchDeps["imageCalls"],
  name: string,
  image: string,
  signal: AbortSignal,
): Promise<void> {
  const id = await imageCalls.imageId(name, signal);
  if (id === image) return;
  await imageCalls.removeName(name, signal);
  throw new Error(`this engine calls it ${id ?? "nothing"}: it keeps images in another way`);
}
