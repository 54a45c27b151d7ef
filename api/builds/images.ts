import type { ImageSource, ImageTransport } from "../../shared/wire/agent/image.ts";
import { UploadMismatch, type Deps, type Hashed } from "../deps.ts";
import { buildSpec, environment as environmentOf } from "../domain/environment.ts";
import { imageRepository } from "../domain/image-name.ts";
import { AppError, notFound } from "../errors.ts";
import { fileForAgents, type StoredFile } from "../files/stored-file.ts";
import { leaseLost, refuseUnless } from "../jobs/lease-post.ts";
import { builtImages, type BuildRow } from "../store/builds/builds.ts";
import { archivedBuilds, dropArchive, findImage, recordArchive } from "../store/builds/images.ts";

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

/** How images reach the agents that did not build them. */
export function imageTransport({
  image_registry,
  max_image_bytes,
}: Deps["config"]): ImageTransport {
  if (image_registry !== undefined) return "registry";
  return max_image_bytes > 0 ? "store" : "none";
}

/** Stores an image's archive while it streams in, before its build is reported. Idempotent. */
export async function storeImageUpload(
  { config, db, artifacts, now }: Deps,
  build: BuildRow,
  leaseId: string,
  body: ReadableStream<Uint8Array>,
  announced: Hashed,
): Promise<void> {
  if (announced.sizeBytes > config.max_image_bytes) {
    throw new AppError("too_large", `Larger than max_image_bytes (${config.max_image_bytes}).`);
  }
  if (build.archiveSha256 !== null) {
    await body.cancel();
    return refuseUnless(
      build.archiveSha256 === announced.sha256 ? "recorded" : "conflict",
      leaseId,
      "as its image",
    );
  }
  if (build.status !== "running") throw leaseLost(leaseId);
  try {
    await artifacts.put(archiveKey({ ...build, leaseId }, announced.sha256), body, announced);
  } catch (error) {
    if (!(error instanceof UploadMismatch)) throw error;
    throw new AppError("invalid_request", error.message);
  }
  if (!(await recordArchive(db, leaseId, announced, now()))) throw leaseLost(leaseId);
}

/** Where agents can get an image. @throws AppError 404 when only the host that built it has it. */
export async function imageSource({ config, db }: Deps, image: string): Promise<ImageSource> {
  const build = await findImage(db, image);
  const type = build && environmentOf(config, [], build.jobType)?.jobType;
  if (!build || !type) throw notFound(`Image ${image}`);
  const { manifestDigest, imageRef, tag } = build;
  const registry_ref = manifestDigest && `${imageRepository(imageRef, tag)}@${manifestDigest}`;
  return { image, job_type: type.name, labels: type.labels, registry_ref };
}

/** The archive of an image. @throws AppError 404 when it is not stored. */
export async function storedArchive({ db, artifacts }: Deps, image: string): Promise<StoredFile> {
  const name = `The archive of image ${image}`;
  const build = await findImage(db, image);
  const sha256 = build?.archiveSha256;
  if (!build || !sha256) throw notFound(name);
  return fileForAgents(sha256, {
    name,
    size: build.archiveBytes ?? 0,
    open: async (range) => {
      const body = await artifacts.get(archiveKey(build, sha256), range);
      if (!body) throw notFound(name);
      return body;
    },
  });
}

/**
 * Marks archives that nobody needs for removal: those of a build that a newer build has replaced, and, a
 * day later, those that no job type uses any more. The day is for another API with a newer configuration.
 */
export async function dropArchives({ config, db, now }: Deps): Promise<void> {
  const archived = await archivedBuilds(db);
  const last = archived.length > 0 ? await builtImages(db) : [];
  for (const { id, digest, endedAt, jobType, spec } of archived) {
    if (endedAt === null) continue;
    const isLast = last.some((one) => one.jobType === jobType && one.digest === digest);
    const asksFor = environmentOf(config, [], jobType)?.jobType;
    const isAskedFor = asksFor !== undefined && buildSpec(asksFor) === spec;
    if (isLast && (isAskedFor || endedAt > now() - dayMs)) continue;
    await dropArchive(db, id, now() + hourMs);
  }
}

/** Key of an archive: ids and a hash, like an artifact's. It is removed with the lease or the build. */
export function archiveKey(
  { id, leaseId }: Pick<BuildRow, "id" | "leaseId">,
  sha256: string,
): string {
  return `${id}/${leaseId}/${sha256}`;
}
