import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import { ApiError } from "../api/errors.ts";
import type { Client } from "../api/client.ts";
import type { SpooledArtifact } from "../sandbox/report.ts";
import { OVER } from "../waiting/clock.ts";

export type UploadDeps = { readonly client: Pick<Client, "upload">; readonly log: Logger };

const AT_ONCE = 4;

/**
 * Uploads artifacts, a few at once. An artifact that the API rejects for good is left out; any
 * other failure ends the upload.
 *
 * @throws ApiError; the signal's reason.
 */
export async function uploadArtifacts(
  deps: UploadDeps,
  leaseId: string,
  artifacts: readonly SpooledArtifact[],
  signal: AbortSignal,
): Promise<void> {
  const queue = artifacts.values();
  const failure = new AbortController();
  const bound = AbortSignal.any([signal, failure.signal]);

  async function work(): Promise<void> {
    for (const artifact of queue) {
      bound.throwIfAborted();
      await upload(deps, leaseId, artifact, bound);
    }
  }

  try {
    await Promise.all(Array.from({ length: AT_ONCE }, work));
  } finally {
    failure.abort(OVER);
  }
}

async function upload(
  { client, log }: UploadDeps,
  leaseId: string,
  artifact: SpooledArtifact,
  signal: AbortSignal,
): Promise<void> {
  try {
    await client.upload(leaseId, artifact, signal);
  } catch (error) {
    if (!(error instanceof ApiError) || error.kind !== "rejected") throw error;
    log.error("the API rejected an artifact, which is left out: {reason}", {
      reason: describeError(error),
    });
  }
}
