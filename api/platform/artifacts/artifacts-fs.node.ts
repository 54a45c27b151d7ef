import { randomUUID } from "node:crypto";
import { mkdir, open, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { Readable } from "node:stream";
import { type Announced, ArtifactOutage, type ArtifactStore } from "../../deps.ts";
import { checkedUpload } from "./checked-upload.node.ts";

/**
 * Stores artifacts as files under a folder. A file gets its final name when all of it is on disk.
 * Unfinished uploads are in a separate folder, and stay there after a crash.
 */
export function artifactFolder(folder: string): ArtifactStore {
  const root = resolve(folder);
  const incoming = join(root, "incoming");
  return {
    async put(key, body, announced) {
      const path = join(root, key);
      const partial = join(incoming, randomUUID());
      try {
        await mkdir(dirname(path), { recursive: true });
        await mkdir(incoming, { recursive: true });
        const sha256 = await writeChecked(partial, body, announced);
        await rename(partial, path);
        await syncFolders(dirname(path), dirname(root));
        return sha256;
      } catch (error) {
        const isFull = ["ENOSPC", "EDQUOT"].includes((error as NodeJS.ErrnoException).code ?? "");
        throw isFull ? new ArtifactOutage("the disk is full", { cause: error }) : error;
      } finally {
        await rm(partial, { force: true });
      }
    },
    async get(key, range) {
      const file = await ifThere(open(join(root, key)));
      const part = range && { start: range.offset, end: range.offset + range.length - 1 };
      return file && (Readable.toWeb(file.createReadStream(part)) as ReadableStream<Uint8Array>);
    },
    async remove(prefix) {
      const isOutside = prefix.split("/").some((part) => ["", ".", ".."].includes(part));
      if (isOutside) throw new Error(`${JSON.stringify(prefix)} is no prefix of stored bytes`);
      await rm(join(root, prefix), { recursive: true, force: true });
    },
    async removePartial(before) {
      for (const name of (await ifThere(readdir(incoming))) ?? []) {
        const path = join(incoming, name);
        const written = await ifThere(stat(path));
        if (written && written.mtimeMs < before) await rm(path, { force: true });
      }
    },
  };
}

/** Undefined if the file does not exist. */
function ifThere<T>(call: Promise<T>): Promise<T | undefined> {
  return call.catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw error;
  });
}

/** Returns the hash of what was written. */
async function writeChecked(
  path: string,
  body: ReadableStream<Uint8Array>,
  announced: Announced,
): Promise<string> {
  const { bytes, sha256 } = checkedUpload(body, announced);
  const file = await open(path, "wx", 0o600);
  try {
    for await (const part of bytes) await file.writeFile(part);
    await file.sync();
    return sha256();
  } finally {
    await file.close();
  }
}

/**
 * Syncs a folder and all its parents up to `top`. A new folder is on disk only when its parent is
 * synced, and another `put` may have made it without syncing it yet.
 */
async function syncFolders(path: string, top: string): Promise<void> {
  await syncFolder(path);
  if (path !== top) await syncFolders(dirname(path), top);
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
