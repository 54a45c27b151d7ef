import { constants } from "node:fs";
import { copyFile, mkdir, open } from "node:fs/promises";
import { dirname } from "node:path";

/** Copies a file, without doubling its blocks where the file system can, and has it on disk. */
export async function copyDurably(from: string, to: string): Promise<void> {
  await mkdir(dirname(to), { recursive: true, mode: 0o700 });
  await copyFile(from, to, constants.COPYFILE_FICLONE);
  await sync(to);
}

/** Brings a file, or the names in a folder, to disk. */
export async function sync(path: string): Promise<void> {
  const file = await open(path);
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}
