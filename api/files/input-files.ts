import { limits } from "../../shared/wire/limits.ts";
import type { FieldError } from "../../shared/wire/errors.ts";
import type { InputFile } from "../../shared/wire/file.ts";
import type { ArtifactStore, ClientDeps } from "../deps.ts";
import type { ByteRange } from "../domain/files/byte-range.ts";
import { contentTypeOf } from "../domain/files/content-type.ts";
import { artifactKey, fileKey } from "../domain/files/store-key.ts";
import { type AppError, notValid } from "../errors.ts";
import { findFiles } from "../store/files.ts";
import type { InputFileRow, NewInputFile } from "../store/jobs/input-files.ts";
import { readSmallOutput } from "../store/output/result-parts.ts";
import { findArtifact } from "../store/output/artifacts.ts";

/** The files of a request. */
export interface FoundFiles {
  /** Identifies the files that the request asks for; part of the hash of its payload. */
  identities: object[];
  rows: NewInputFile[];
  /** The refusal, if one of the files does not exist. */
  problem?: AppError | undefined;
}

type Stored = Pick<NewInputFile, "sizeBytes" | "sha256" | "content" | "storeKey" | "owner">;

/** Finds the files of requests. What several ask for is looked up once. */
export function fileFinder(deps: ClientDeps): (files: InputFile[]) => Promise<FoundFiles> {
  const known = new Map<string, Promise<Stored | undefined>>();
  const look = (identity: object, find: () => Promise<Stored | undefined>) => {
    const name = JSON.stringify(identity);
    const found = known.get(name) ?? find();
    known.set(name, found);
    return found;
  };
  return async (files) => {
    const found: FoundFiles = { identities: [], rows: [] };
    const faults: FieldError[] = [];
    for (const [n, file] of files.entries()) {
      const { name, file_id, artifact } = file;
      const about = { name, contentType: contentTypeOf(name) };
      const bytes = inlineBytes(file);
      if (bytes) {
        const sha256 = await deps.sha256(bytes);
        found.identities.push({ name, sha256 });
        const where = { content: bytes, storeKey: null, owner: null };
        found.rows.push({ ...about, sizeBytes: bytes.length, sha256, ...where });
        continue;
      }
      const identity = artifact ? { artifact } : { file_id };
      found.identities.push({ name, ...identity });
      const stored = await look(identity, () =>
        artifact ? storedArtifact(deps, artifact) : storedFile(deps, file_id ?? ""),
      );
      if (stored) found.rows.push({ ...about, ...stored });
      else faults.push(artifact ? noArtifact(n) : noFile(n));
    }
    if (faults.length > 0) found.problem = notValid("The request", faults);
    return found;
  };
}

const noFile = (n: number) => ({
  path: `files.${n}.file_id`,
  message: "is no uploaded file, or one that has expired or was removed",
});
const noArtifact = (n: number) => ({
  path: `files.${n}.artifact`,
  message: "does not exist, or its job has not finished",
});

function inlineBytes({ text, base64 }: InputFile): Uint8Array | undefined {
  if (text !== undefined) return new TextEncoder().encode(text);
  if (base64 === undefined) return undefined;
  const letters = atob(base64);
  const bytes = new Uint8Array(letters.length);
  for (let n = 0; n < letters.length; n++) bytes[n] = letters.charCodeAt(n);
  return bytes;
}

async function storedFile({ db, now }: ClientDeps, id: string): Promise<Stored | undefined> {
  const [file] = await findFiles(db, [id], now());
  if (!file) return undefined;
  const { sizeBytes, sha256 } = file;
  return { sizeBytes, sha256, content: null, storeKey: fileKey(file), owner: id };
}

/** The name of the file that a record shows as `output`. */
export const resultName = "result.json";

/** Its bytes, as the code wrote them; undefined if there is no `output`. */
export async function resultOf({ db, sha256 }: ClientDeps, jobId: string) {
  const content = await readSmallOutput(db, jobId, limits.resultJsonMaxBytes);
  if (!(content instanceof Uint8Array)) return undefined;
  const about = { sizeBytes: content.length, sha256: await sha256(content) };
  return { ...about, content, storeKey: null, owner: null };
}

async function storedArtifact(
  deps: ClientDeps,
  { job_id, name }: { job_id: string; name: string },
): Promise<Stored | undefined> {
  const row = await findArtifact(deps.db, job_id, name);
  if (!row) return name === resultName ? resultOf(deps, job_id) : undefined;
  const { sizeBytes, sha256 } = row;
  return { sizeBytes, sha256, content: null, storeKey: artifactKey(row), owner: row.executionId };
}

export function bodyOf(whole: Uint8Array, range?: ByteRange): ReadableStream<Uint8Array> {
  const part = range ? whole.subarray(range.offset, range.offset + range.length) : whole;
  return new Response(part as Uint8Array<ArrayBuffer>).body!;
}

/** The bytes of a file of an execution, or a part of them. */
export async function openInputFile(
  artifacts: ArtifactStore,
  { content, storeKey }: Pick<InputFileRow, "content" | "storeKey">,
  range?: ByteRange,
): Promise<ReadableStream<Uint8Array> | undefined> {
  if (storeKey !== null) return artifacts.get(storeKey, range);
  const whole = content ?? new Uint8Array();
  return bodyOf(whole, range);
}
