import type { Deps } from "../deps.ts";
import { notFound } from "../errors.ts";
import { openInputFile } from "../files/input-files.ts";
import { fileForAgents, type StoredFile } from "../files/stored-file.ts";
import { leaseLost } from "../jobs/lease-post.ts";
import type { ExecutionRow } from "../store/jobs/row.ts";
import { findInputFile } from "../store/jobs/input-files.ts";

/**
 * A file of a leased job, for its agent.
 *
 * @throws AppError 404 when the job has no file with this hash; 409 when the lease is over.
 */
export async function leasedFile(
  { artifacts, db }: Deps,
  { id, leaseId, status }: ExecutionRow,
  sha256: string,
): Promise<StoredFile> {
  if (status !== "running") throw leaseLost(leaseId ?? "");
  const file = await findInputFile(db, id, { sha256 });
  if (!file) throw notFound(`File ${sha256} of job ${id}`, { job_id: id });
  return fileForAgents(sha256, {
    name: "The file",
    size: file.sizeBytes,
    open: async (range) => {
      const body = await openInputFile(artifacts, file, range);
      if (!body) throw new Error(`the bytes of file ${sha256} of ${id} are missing`);
      return body;
    },
  });
}
