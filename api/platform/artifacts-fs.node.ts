import { createHash, randomUUID } from "node:crypto";
import { mkdir, open, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { Readable } from "node:stream";
import { type Announced, type ArtifactStore, UploadMismatch } from "../deps.ts";
import { received } from "../http/received.ts";

/** Artifacts as files under a folder; each appears whole, under its final name, once it is on disk. */
export function artifactFolder(root: string): ArtifactStore {
  return {
    async put(key, body, announced) {
      const path = join(root, key);
      await mkdir(dirname(path), { recursive: true });
      const partial = `${path}.${randomUUID()}.part`;
      try {
        await writeChecked(partial, body, announced);
        await rename(partial, path);
        await syncFolder(dirname(path));
      } finally {
        await rm(partial, { force: true });
      }
    },
    async get(key, range) {
      const file = await open(join(root, key)).catch((error: NodeJS.ErrnoException) => {
        if (error.code === "ENOENT") return undefined;
        throw error;
      });
      const part = range && { start: range.offset, end: range.offset + range.length - 1 };
      return file && (Readable.toWeb(file.createReadStream(part)) as ReadableStream<Uint8Array>);
    },
  };
}

async function writeChecked(
  path: string,
  body: ReadableStream<Uint8Array>,
  { sizeBytes, sha256 }: Announced,
): Promise<void> {
  const hash = createHash("sha256");
  let size = 0;
  const file = await open(path, "wx", 0o600);
  try {
    for await (const part of received(body)) {
      size += part.length;
      if (size > sizeBytes) break;
      hash.update(part);
      await file.writeFile(part);
    }
    if (size !== sizeBytes || hash.digest("hex") !== sha256) {
      throw new UploadMismatch(`Size or SHA-256 of the upload differ from its headers.`);
    }
    await file.sync();
  } finally {
    await file.close();
  }
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
