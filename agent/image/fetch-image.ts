import type { Logger } from "@logtape/logtape";
import { Readable } from "node:stream";
import type { ImageSource } from "../../shared/wire/agent/image.ts";
import type { AgentIdentity } from "../../shared/wire/agent/lease.ts";
import type { Admission } from "../policy/admission.ts";
import { ApiError } from "../api/errors.ts";
import type { Client } from "../api/client.ts";
import { FETCHED } from "./fetched-images.ts";
import { authFor, type Registry } from "./registry.ts";
import type { ImageCalls } from "../engine/image-calls.ts";
import { otherIds } from "./image-archive.ts";
import { unpackImage } from "./unpack-image.ts";

export type FetchDeps = {
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
export class UnfitImage extends Error {
  override name = "UnfitImage";
}

/**
 * Fetches one image that another agent has built, from the source that the API names.
 *
 * @param makeRoom called before the transfer; throws if there is no room.
 * @returns false if the image is not for this agent, or only the host that built it has it.
 * @throws UnfitImage; ImageArchiveError; JobRefusal; EngineError; ApiError; the signal's reason.
 */
export async function fetchImage(
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
