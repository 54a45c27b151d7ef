import type { Config } from "../../shared/config/config.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { FilePage, UploadedFile } from "../../shared/wire/file.ts";
import { UploadMismatch, type Announced, type ClientDeps } from "../deps.ts";
import { artifactNameRule, isArtifactName } from "../../shared/artifact-name.ts";
import { contentTypeOf } from "../domain/files/content-type.ts";
import { fileKey } from "../domain/files/store-key.ts";
import { AppError, notFound, unavailable } from "../errors.ts";
import { quotaExceeded } from "../quota.ts";
import { postponeRemoval } from "../store/retention.ts";
import { type AnyDb, ofTenant } from "../store/tenant.ts";
import {
  expectFile,
  findByUploadKey,
  findFiles,
  recordFile,
  removeFile,
  type FileRow,
} from "../store/files.ts";

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
    const earlier = file.uploadKey && (await findByUploadKey(db, file.uploadKey, createdAt));
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
    created_at: new Date(file.createdAt).toISOString(),
    expires_at: new Date(file.expiresAt).toISOString(),
  };
}

export function toFilePage(db: AnyDb, rows: FileRow[], limit: number, offset: number): FilePage {
  const items = rows
    .slice(0, limit)
    .map((row) => ({ ...toUploadedFile(row), ...ofTenant(db, row) }));
  return { items, limit, offset, has_more: rows.length > limit, count: items.length };
}
