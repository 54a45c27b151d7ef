import { readFileSync } from "node:fs";
import { z } from "zod";
import { OperatorError } from "../command/operator-error.ts";
import { Timestamp } from "../../shared/wire/timestamp.ts";

/** What a backup is; written last, so that a folder without it is no whole backup. */
export const Manifest = z.object({
  version: z.string(),
  created_at: Timestamp,
  executions: z.int(),
  artifacts: z.int(),
});
export type Manifest = z.infer<typeof Manifest>;

/** @throws OperatorError where the backup never came to its end. */
export function readManifest(path: string): Manifest {
  try {
    return Manifest.parse(JSON.parse(readFileSync(path, "utf8")));
  } catch (cause) {
    throw new OperatorError(`no whole backup is there: ${path} is missing or is no manifest`, {
      cause,
    });
  }
}
