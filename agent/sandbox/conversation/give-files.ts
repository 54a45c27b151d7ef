import { once } from "node:events";
import { createReadStream } from "node:fs";
import { dataBytes, encodeFrame } from "../protocol/frames.ts";
import type { Link } from "../protocol/link.ts";
import { EngineError } from "../errors.ts";
import type { InputFile } from "../job.ts";

/**
 * Sends files to the supervisor, which puts them under /input, as fast as it takes them.
 *
 * @param died aborts when it has ended.
 * @throws EngineError if it ends; the disk's errors; the signal's reason.
 */
export async function giveFiles(
  link: Link,
  files: readonly InputFile[],
  died: AbortSignal,
  signal: AbortSignal,
): Promise<void> {
  const stop = AbortSignal.any([signal, died]);
  const { input } = link;
  async function send(frame: Buffer): Promise<void> {
    stop.throwIfAborted();
    if (!input.write(frame)) await once(input, "drain", { signal: stop });
  }
  try {
    for (const { name, path } of files) {
      await send(encodeFrame("M", Buffer.from(name)));
      for await (const piece of createReadStream(path, { highWaterMark: dataBytes }))
        await send(encodeFrame("U", piece as Buffer));
    }
  } catch (error) {
    link.destroy();
    signal.throwIfAborted();
    if (!died.aborted) throw error;
    const message = "the container ended while it was given its files";
    throw new EngineError("other", message, { cause: died.reason });
  }
}
