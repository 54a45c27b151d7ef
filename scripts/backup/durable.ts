import { constants } from "node:fs";
import { chmod, copyFile, open } from "node:fs/promises";
import { dirname } from "node:path";
import { makeFolder } from "../../shared/process/make-folder.node.ts";

/** Copies a file, without doubling its blocks where the file system can, and has it on disk. */
export async function copyDurably(from: string, to: string): Promise<void> {
  makeFolder(dirname(to));
  await copyFile(from, to, constants.COPYFILE_FICLONE);
  await chmod(to, 0o600);
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
