import type { LeasedBuild } from "../shared/lease.ts";
import { ApiError } from "./api-error.ts";
import type { Client } from "./client.ts";
import { authFor, type Registry } from "./registry.ts";
import { ImageArchiveError } from "./sandbox/image-archive.ts";
import type { ImageCalls } from "./sandbox/image-calls.ts";
import { packImage } from "./sandbox/pack-image.ts";
import { EngineError } from "./sandbox/types.ts";
import type { SpoolDir } from "./spool-dir.ts";

export type ShareDeps = {
  readonly client: Pick<Client, "buildImage">;
  readonly imageCalls: Pick<ImageCalls, "push" | "save">;
  readonly spool: SpoolDir;
  readonly registry: Registry;
  readonly maxImageBytes: number;
};

/**
 * Brings an image that has been built to where other agents get it, as its lease says. One that is
 * too large for the artifact store stays where it is, and `say` is told.
 *
 * @returns the digest of its manifest in the registry; null where it is in none.
 * @throws EngineError, transient where the registry does not take it; ApiError; the signal's reason.
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
  { imageCalls, registry }: ShareDeps,
  { repository, tags }: LeasedBuild,
  say: (words: string) => void,
  signal: AbortSignal,
): Promise<string | null> {
  let digest: string | null = null;
  for (const tag of tags) {
    const name = `${repository}:${tag}`;
    try {
      digest = await imageCalls.push(repository, tag, signal, authFor(registry, name));
    } catch (error) {
      if (!(error instanceof EngineError)) throw error;
      const message = `${name} could not be pushed: ${error.message}`;
      throw new EngineError(error.code, message, { cause: error, transient: true });
    }
    say(`Pushed ${name} (${digest})\n`);
  }
  return digest;
}

async function upload(
  { client, imageCalls, spool, maxImageBytes }: ShareDeps,
  { lease_id }: LeasedBuild,
  image: string,
  say: (words: string) => void,
  signal: AbortSignal,
): Promise<void> {
  await using folder = spool.folder(lease_id);
  try {
    const tar = await imageCalls.save(image, signal);
    const archive = await packImage(tar, image, folder.path, maxImageBytes);
    await client.buildImage(lease_id, archive, signal);
    say(`Stored the image for other agents: ${archive.sizeBytes} bytes\n`);
  } catch (error) {
    signal.throwIfAborted();
    const isKept =
      error instanceof ImageArchiveError ||
      (error instanceof ApiError && error.kind === "rejected");
    if (!isKept) throw error;
    say(`The image stays on this host: ${error.message}\n`);
  }
}
