import { fromBase64 } from "../../shared/bytes.ts";
import type { Config } from "../../shared/config/config.ts";
import { artifactNameRule, isArtifactName } from "../../shared/names.ts";
import type { FieldError } from "../../shared/wire/errors.ts";
import type { FilePage, InputFile, UploadedFile } from "../../shared/wire/files.ts";
import { limits } from "../../shared/wire/limits.ts";
import { type Announced, type ArtifactStore, type ClientDeps, UploadMismatch } from "../deps.ts";
import { AppError, notFound, notValid, unavailable } from "../errors.ts";
import { findArtifact, readSmallOutput } from "../jobs/output.ts";
import { timestamp } from "../jobs/read.ts";
import type { InputFileRow, NewInputFile } from "../jobs/sql.ts";
import { postponeRemoval } from "../store/retention.ts";
import { type AnyDb, ofTenant } from "../store/tenant.ts";
import { quotaExceeded } from "../tenants/tenants.ts";
import { artifactKey, type ByteRange, contentTypeOf, fileKey } from "./rules.ts";
import {
  expectFile,
  type FileRow,
  findByUploadKey,
  findFiles,
  recordFile,
  removeFile,
} from "./sql.ts";

const hourMs = 3_600_000;

/** Longer than any upload may take. */
const longestUploadMs = 24 * hourMs;

/**
 * Stores a file while it streams in. The sweep removes what is left of an upload that breaks off.
 *
 * @throws AppError 400 if the name, the size or the hash is wrong; 401 if the client's key has become void
 * meanwhile; 413 if the file is too large; 503 if all files together would be too large.
 */
export async function storeFile(
  deps: ClientDeps,
  name: string,
  body: ReadableStream<Uint8Array>,
  announced: Announced,
  idempotencyKey?: string,
): Promise<UploadedFile> {
  const { artifacts, config, db, newId, now } = deps;
  checkName(name);
  const { sizeBytes } = announced;
  checkSize(config, sizeBytes);
  const most = config.max_files_bytes || Number.MAX_SAFE_INTEGER;
  const id = newId();
  if (!(await expectFile(db, { id, sizeBytes }, now() + longestUploadMs, most))) {
    throw (await quotaExceeded(deps, { jobs: 0, bytes: sizeBytes })) ?? filesFull(most);
  }
  // The note must be on disk before the bytes are.
  await db.durable();
  try {
    const hash = await artifacts.put(fileKey({ id }), body, announced);
    await deps.recheck();
    const createdAt = now();
    const file = {
      id,
      tenant: "default",
      name,
      sizeBytes,
      sha256: hash,
      contentType: contentTypeOf(name),
      createdAt,
      expiresAt: createdAt + Math.round(config.file_retention_hours * hourMs),
      uploadKey: idempotencyKey ?? null,
    };
    if (await recordFile(db, file)) return toUploadedFile(file);
    const earlier =
      file.uploadKey && (await findByUploadKey(db, { uploadKey: file.uploadKey, now: createdAt }));
    if (earlier) {
      const answer = repeated(earlier, file);
      await postponeRemoval(db, id, now()).catch(() => {});
      return answer;
    }
  } catch (error) {
    // If the database is out of reach, the earlier due time of the removal stays.
    await postponeRemoval(db, id, now()).catch(() => {});
    if (!(error instanceof UploadMismatch)) throw error;
    throw new AppError("invalid_request", error.message);
  }
  throw unavailable("The upload took too long; send it again.", 5);
}

function checkSize({ max_file_bytes, max_files_bytes }: Config, sizeBytes: number): void {
  const isAll = max_files_bytes > 0 && max_files_bytes < max_file_bytes;
  const [most, key] = isAll
    ? [max_files_bytes, "max_files_bytes"]
    : [max_file_bytes, "max_file_bytes"];
  if (sizeBytes <= most) return;
  throw new AppError("too_large", `The file is larger than ${most} bytes (${key}).`);
}

function filesFull(mostBytes: number): AppError {
  const detail = `The uploaded files would have more than ${mostBytes} bytes together (max_files_bytes): wait until some expire, or remove some with DELETE /files/{id}. The bytes of a removed file count for another hour.`;
  return unavailable(detail, 60);
}

/** The answer to an upload with the key of an earlier one. @throws AppError 409 if the files differ. */
function repeated(earlier: FileRow, file: FileRow): UploadedFile {
  if (earlier.name === file.name && earlier.sha256 === file.sha256) return toUploadedFile(earlier);
  const detail = `The idempotency key was used for another file, ${earlier.id}. Use a new key.`;
  throw new AppError("conflict", detail);
}

function checkName(name: string): void {
  const most = limits.artifactNameMaxBytes;
  if (isArtifactName(name) && new TextEncoder().encode(name).length <= most) return;
  const message = `${artifactNameRule}, of at most ${most} bytes`;
  throw new AppError("invalid_request", `name: ${message}`, {
    errors: [{ path: "name", message }],
  });
}

/** @throws AppError 404 when it is unknown, has expired or was removed. */
export async function findFile({ db, now }: ClientDeps, id: string): Promise<FileRow> {
  const [file] = await findFiles(db, [id], now());
  if (!file) throw notFound(`File ${id}`);
  return file;
}

/**
 * Removes a file. Records that refer to it keep its bytes; otherwise they are removed an hour later, for
 * the sake of backups.
 *
 * @throws AppError 404 when it is unknown.
 */
export async function forgetFile({ db, now }: ClientDeps, id: string): Promise<void> {
  if (!(await removeFile(db, id, now() + hourMs))) throw notFound(`File ${id}`);
}

function toUploadedFile(file: FileRow): UploadedFile {
  return {
    file_id: file.id,
    name: file.name,
    size_bytes: file.sizeBytes,
    sha256: file.sha256,
    content_type: file.contentType,
    created_at: timestamp(file.createdAt),
    expires_at: timestamp(file.expiresAt),
  };
}

export function toFilePage(db: AnyDb, rows: FileRow[], limit: number, offset: number): FilePage {
  const items = rows
    .slice(0, limit)
    .map((row) => ({ ...toUploadedFile(row), ...ofTenant(db, row) }));
  return { items, limit, offset, has_more: rows.length > limit, count: items.length };
}

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
  return base64 === undefined ? undefined : fromBase64(base64);
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
  const row = await findArtifact(deps.db, { executionId: job_id, name });
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

/** A file of the artifact store and the headers to send it with. */
export interface StoredFile {
  /** Its name in error messages. */
  name: string;
  size: number;
  etag: string;
  headers: Record<string, string>;
  open: (range?: ByteRange) => Promise<ReadableStream<Uint8Array>>;
  /** Whether it is whole in memory once it is open. */
  isInMemory?: boolean;
}

/** A file for agents, who know it by its SHA-256. */
export function fileForAgents(
  sha256: string,
  file: Pick<StoredFile, "name" | "size" | "open">,
): StoredFile {
  const etag = `"${sha256}"`;
  const headers = {
    "Content-Type": "application/octet-stream",
    "Cache-Control": "private, no-store, no-transform",
    ETag: etag,
  };
  return { ...file, etag, headers };
}
