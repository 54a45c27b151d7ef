import type { LeasedFile } from "../../shared/wire/file.ts";
import type { LeasedJob } from "../../shared/wire/agent/lease.ts";
import type { CallFile as LeasedCallFile } from "../../shared/wire/agent/session.ts";
import type { Client } from "../api/client.ts";
import { ApiError } from "../api/errors.ts";
import { JobRefusal } from "../policy/refusal.ts";
import { isArtifactName } from "../sandbox/output/artifact-name.ts";
import type { CallFile, InputFile } from "../sandbox/job.ts";
import type { FileLoan, FileStore } from "./file-store.ts";

/** The files of one job, from the API to its sandbox. Disposing gives them back. */
export interface JobFiles extends AsyncDisposable {
  /** Lends them to the job, fetched where they are missing. */
  readonly fetch: (signal: AbortSignal) => Promise<readonly CallFile[]>;
}

export interface JobFilesDeps {
  readonly files: FileStore;
  readonly client: Pick<Client, "inputFile">;
}

export function filesOf({ files: store, client }: JobFilesDeps, job: LeasedJob): JobFiles {
  const files = job.files ?? [];
  const open = (file: LeasedFile, until: AbortSignal) =>
    client.inputFile(job.lease_id, file.sha256, until).catch((error: unknown) => {
      throw explained(error);
    });
  let loan: FileLoan | null = null;
  return {
    async fetch(signal) {
      if (files.length === 0) return [];
      refuseNames(files);
      loan ??= await store.borrow(job.tenant, files, open, signal);
      const { pathOf } = loan;
      return files.map(({ name, size_bytes, sha256, to = "input" as const }) => ({
        name,
        to,
        sizeBytes: size_bytes,
        sha256,
        path: pathOf(sha256),
      }));
    },
    [Symbol.asyncDispose]() {
      loan?.giveBack();
      return Promise.resolve();
    },
  };
}

export function sizeOf(files: readonly InputFile[]): number {
  return files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
}

/** Checks names again, although the API has checked them: here a name becomes a path. */
function refuseNames(files: readonly LeasedCallFile[]): void {
  const bad = files.find((file) => !isArtifactName(file.name) || isReserved(file));
  if (bad === undefined) return;
  const shown = JSON.stringify(bad.name).slice(0, 200);
  throw new JobRefusal(
    "config_error",
    `A file of the job has a name that is not allowed: ${shown}`,
  );
}

/** Names in /input that are the agent's own. */
const isReserved = ({ name, to }: LeasedCallFile): boolean =>
  to !== "work" && (name.startsWith("_") || name === "data.json");

/** If the API no longer has a file, trying the job again is of no use. */
function explained(error: unknown): unknown {
  if (!(error instanceof ApiError) || error.endsAgent) return error;
  if (error.kind === "rejected")
    return new JobRefusal(
      "internal_error",
      `A file of the job could not be fetched: ${error.message}`,
    );
  return new Error("a file of the job could not be fetched", { cause: error });
}
