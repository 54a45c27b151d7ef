import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { atEndOfFile } from "./end-of-file.ts";

/** A new folder, until the end of the test file that runs. */
export function tempFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "airlock-test-"));
  atEndOfFile(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
