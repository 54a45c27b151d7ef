import pRetry from "p-retry";
import type { LeasedBuild } from "../../shared/wire/agent/lease.ts";
import { describeError } from "../../shared/log-line.ts";
import { ApiError } from "../api/errors.ts";
import type { Client, RetryTimes } from "../api/client.ts";
import { authFor, type Registry } from "./registry.ts";
import type { ImageCalls } from "../engine/image-calls.ts";
import { packImage } from "./pack-image.ts";
import type { SpoolDir } from "../sandbox/output/spool-dir.ts";

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
