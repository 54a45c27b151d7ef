import { openAsBlob } from "node:fs";
import { access, constants } from "node:fs/promises";
import { UsageError } from "./exit.ts";

/** A file whose bytes are read while they are sent. */
export async function openFile(path: string): Promise<Blob> {
  try {
    await access(path, constants.R_OK);
    return await openAsBlob(path);
  } catch (error) {
    throw new UsageError(`${path} cannot be read: ${(error as Error).message}`);
  }
}
