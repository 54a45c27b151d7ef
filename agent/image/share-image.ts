import pRetry from "p-retry";
import type { LeasedBuild } from "../../shared/wire/lease.ts";
import { describeError } from "../../shared/log-line.ts";
import { ApiError } from "../api/errors.ts";
import type { Client, RetryTimes } from "../api/client.ts";
import { authFor, type Registry } from "./registry.ts";
import type { ImageCalls } from "../container/image-calls.ts";
import { packImage } from "./pack-image.ts";
import type { SpoolDir } from "../sandbox/output/spool-dir.ts";

export type ShareDeps = {
  readonly client: Pick<Client, "buildImage">;
  readonly imageCalls: Pick<ImageCalls, "push" | "save">;
  readonly spool: SpoolDir;
  readonly registry: Registry;
  readonly maxImageBytes: number;
  /** How often a push is repeated, and when. */
  readonly times: RetryTimes;
};

/** About as long as a registry takes to start anew. */
export const pushTimes: RetryTimes = { retries: 4, minTimeout: 1000, maxTimeout: 10_000 };

/** The registry does not take an image that has been built; the engine is well. */
export class PushError extends Error {
  override name = "PushError";
}

/**
 * Brings an image that has been built to where other agents get it, as its lease says. One that the
 * artifact store cannot get stays where it is, and `say` is told why: it is built all the same.
 *
 * @returns the digest of its manifest in the registry; null where it is in none.
 * @throws PushError; ApiError where the agent or its lease is refused; the signal's reason.
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
