import { openAsBlob } from "node:fs";
import { access, constants, stat } from "node:fs/promises";
import { UsageError } from "../exit.ts";
import { showProgress } from "./progress.ts";
import type { Terminal } from "../terminal.ts";

/** A file whose bytes are read while they are sent. Shows how far that is. */
export async function openFile(path: string, terminal: Terminal): Promise<Blob> {
  const blob = await open(path);
  const read = blob.stream.bind(blob);
  // `fetch` says nothing about what it has sent, and reads the blob with this method at each try.
  blob.stream = () => {
    const progress = showProgress(terminal, path, blob.size);
    const counting = new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
      transform(part, controller) {
        progress.add(part.length);
        controller.enqueue(part);
      },
      flush: () => progress.end(),
    });
    return read().pipeThrough(counting);
  };
  return blob;
}

async function open(path: string): Promise<Blob> {
  try {
    await access(path, constants.R_OK);
    // A folder could be opened, but not read.
    if ((await stat(path)).isFile()) return await openAsBlob(path);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new UsageError(
      code === "ENOENT" ? `there is no file ${path}` : `${path} cannot be read: ${message}`,
    );
  }
  throw new UsageError(`${path} is not a regular file`);
}
