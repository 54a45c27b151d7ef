import { open } from "node:fs/promises";
import { JobRefusal } from "../policy/refusal.ts";
import { InstallError } from "../sandbox/package-request.ts";
import { dataBytes, encodeFrame } from "../sandbox/protocol/frames.ts";
import type { InputFile } from "../sandbox/job.ts";
import type { InstallBundle, BundleLoan, Bundles } from "./bundles.ts";

/**
 * Lends an input file as a bundle with the one file `content`, for all jobs of its tenant that have the same bytes.
 *
 * @throws JobRefusal if there is no room for it; EngineError; the disk's errors; the signal's reason.
 */
export async function borrowFile(
  bundles: Pick<Bundles, "borrow">,
  secret: string,
  tenant: string,
  file: InputFile,
  signal: AbortSignal,
): Promise<BundleLoan> {
  const key = { tenant, content: `file ${secret} ${file.sha256}` };
  try {
    return await bundles.borrow(key, sending(file), signal, () => {}, true);
  } catch (error) {
    if (!(error instanceof InstallError)) throw error;
    const message =
      "The agent has no room on disk for the job's files: raise its dependency_cache_bytes, which also bounds the files that forked jobs mount.";
    throw new JobRefusal("config_error", message, { cause: error });
  }
}

function sending({ path }: InputFile): InstallBundle {
  return async (keep, signal) => {
    await using file = await open(path);
    const write = await keep();
    const head = { name: "content", executable: false, mtime: Math.floor(Date.now() / 1000) };
    await write(encodeFrame("A", Buffer.from(JSON.stringify(head))));
    const pieces = file.createReadStream({ highWaterMark: dataBytes, autoClose: false });
    for await (const piece of pieces) {
      signal.throwIfAborted();
      await write(encodeFrame("D", piece as Buffer));
    }
  };
}
