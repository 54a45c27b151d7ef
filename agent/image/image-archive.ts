import { createHash } from "node:crypto";
import { z } from "zod";
import { STANDS_IN_FOR } from "./stand-in.ts";
import { checkLayer } from "./check-layer.ts";
import { ImageArchiveError } from "./image-error.ts";
import { MAX_TAR_FILE_BYTES } from "./tar.ts";

/**
 * The format in which images go from host to host: a line of JSON with the sizes of the parts, the
 * image's configuration, then its layers in order; everything compressed with zstd. An image's id
 * is the SHA-256 of its configuration, which holds the SHA-256 of each layer, so both sides can
 * check every byte.
 */
export const Sizes = z.object({
  config: z
    .int()
    .min(2)
    .max(4 * 1024 * 1024),
  layers: z.array(z.int().min(0).max(MAX_TAR_FILE_BYTES)).max(1000),
});
export const sizesMaxBytes = 64 * 1024;

const ImageConfig = z.object({
  architecture: z.string().optional(),
  rootfs: z.object({ diff_ids: z.array(z.string()) }),
  config: z.object({ Labels: z.record(z.string(), z.string()).nullish() }).nullish(),
});

/** Why an engine that calls an image by another digest than that of its configuration cannot share it. */
export const otherIds =
  "an engine with containerd's image store cannot share images through the artifact store: set image_registry, or turn containerd-snapshotter off";

/**
 * Checks a configuration against the id of its image and, if given, the engine's architecture.
 * Returns the SHA-256 of each layer.
 */
export function readConfig(
  bytes: Buffer,
  image: string,
  layers: number,
  engine?: string,
): string[] {
  if (sha256(bytes) !== image) {
    throw new ImageArchiveError(`its id is not that of its configuration, ${sha256(bytes)}`);
  }
  const { rootfs, config, architecture } = ImageConfig.parse(JSON.parse(bytes.toString("utf8")));
  if (rootfs.diff_ids.length !== layers) throw new ImageArchiveError("it lacks layers");
  const standsInFor = config?.Labels?.[STANDS_IN_FOR];
  if (standsInFor) throw new ImageArchiveError(`it would stand in for ${standsInFor}`);
  if (engine && architecture && architecture !== engine) {
    throw new ImageArchiveError(`it is for ${architecture}, and this host is ${engine}`);
  }
  return rootfs.diff_ids;
}

/**
 * Passes on the bytes of a layer. Throws if they must not be unpacked, and at the end if their
 * digest is not `diffId`.
 */
export async function* checked(
  bytes: AsyncIterable<Buffer>,
  diffId: string,
): AsyncGenerator<Buffer> {
  const hash = createHash("sha256");
  for await (const piece of checkLayer(bytes)) {
    hash.update(piece);
    yield piece;
  }
  if (`sha256:${hash.digest("hex")}` !== diffId) {
    throw new ImageArchiveError(`a layer is not ${diffId}, which its configuration names`);
  }
}

export function sha256(bytes: Buffer): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}
