import { createHash, randomUUID } from "node:crypto";
import { mkdir, open, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Logger } from "@logtape/logtape";
import { parseXml, XmlElement, type XmlNode } from "@rgrove/parse-xml";
import { AwsV4Signer } from "aws4fetch";
import { type Dispatcher, Pool } from "undici";
import { type Config, ConfigError } from "../../shared/config/config.ts";
import { describeError } from "../../shared/log-line.ts";
import { freed, partBytes, toWeb } from "../../shared/process/parts.node.ts";
import { type Announced, ArtifactOutage, type ArtifactStore, UploadMismatch } from "../deps.ts";
import { received } from "../http/body.ts";

/** Longer than a healthy service takes for any part of an answer. */
const timeoutMs = 15_000;

/**
 * Opens the configured artifact store: a bucket if `s3_bucket` is set, else a folder of `data_dir`.
 * A bucket that is out of reach gives a warning, since it may come back. A bucket that refuses access
 * is an error of the configuration.
 *
 * @throws ConfigError that names the missing keys or quotes the service's message.
 */
export async function openArtifacts(config: Config, log: Logger): Promise<ArtifactStore> {
  const bucket = bucketOf(config);
  if (!bucket) return artifactFolder(join(config.data_dir, "artifacts"));
  const store = artifactsS3({ ...bucket, timeoutMs });
  try {
    await store.check();
  } catch (error) {
    const { cause } = error as Error;
    if (cause instanceof S3Refusal) {
      throw new ConfigError(
        `the bucket ${bucket.bucket} at ${bucket.endpoint} refuses s3_access_key_id: ${cause.message}`,
        { cause },
      );
    }
    if (!(error instanceof ArtifactOutage)) throw error;
    log.warn("no artifact can be stored or fetched for now: {reason}", {
      reason: `${bucket.endpoint}: ${describeError(error)}`,
    });
  }
  return store;
}

function bucketOf(config: Config) {
  const { s3_endpoint, s3_bucket, s3_access_key_id, s3_secret_access_key } = config;
  const given = { s3_endpoint, s3_bucket, s3_access_key_id, s3_secret_access_key };
  const missing = Object.entries(given).flatMap(([name, value]) => (value ? [] : [name]));
  if (missing.length === Object.keys(given).length) return undefined;
  if (!s3_endpoint || !s3_bucket || !s3_access_key_id || !s3_secret_access_key) {
    throw new ConfigError(
      `an S3 artifact store needs ${missing.join(", ")} too; without s3_ keys, it is a folder`,
    );
  }
  return {
    endpoint: s3_endpoint,
    bucket: s3_bucket,
    accessKeyId: s3_access_key_id,
    secretAccessKey: s3_secret_access_key,
    region: config.s3_region,
    pathStyle: config.s3_path_style,
  };
}

/**
 * Stores artifacts as files under a folder. A file gets its final name when all of it is on disk.
 * Unfinished uploads are in a separate folder, and stay there after a crash.
 */
export function artifactFolder(folder: string): ArtifactStore {
  const root = resolve(folder);
  const incoming = join(root, "incoming");
  return {
    async put(key, body, announced) {
      const path = join(root, key);
      const partial = join(incoming, randomUUID());
      try {
        await mkdir(dirname(path), { recursive: true });
        await mkdir(incoming, { recursive: true });
        const sha256 = await writeChecked(partial, body, announced);
        await rename(partial, path);
        await syncFolders(dirname(path), dirname(root));
        return sha256;
      } catch (error) {
        const isFull = ["ENOSPC", "EDQUOT"].includes((error as NodeJS.ErrnoException).code ?? "");
        throw isFull ? new ArtifactOutage("the disk is full", { cause: error }) : error;
      } finally {
        await rm(partial, { force: true });
      }
    },
    async get(key, range) {
      const file = await ifThere(open(join(root, key)));
      const part = range && { start: range.offset, end: range.offset + range.length - 1 };
      return file && toWeb(freed(file.createReadStream({ ...part, highWaterMark: partBytes })));
    },
    async remove(prefix) {
      const isOutside = prefix.split("/").some((part) => ["", ".", ".."].includes(part));
      if (isOutside) throw new Error(`${JSON.stringify(prefix)} is no prefix of stored bytes`);
      await rm(join(root, prefix), { recursive: true, force: true });
    },
    async removePartial(before) {
      for (const name of (await ifThere(readdir(incoming))) ?? []) {
        const path = join(incoming, name);
        const written = await ifThere(stat(path));
        if (written && written.mtimeMs < before) await rm(path, { force: true });
      }
    },
  };
}

/** Undefined if the file does not exist. */
function ifThere<T>(call: Promise<T>): Promise<T | undefined> {
  return call.catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw error;
  });
}

/** Returns the hash of what was written. */
async function writeChecked(
  path: string,
  body: ReadableStream<Uint8Array>,
  announced: Announced,
): Promise<string> {
  const { bytes, sha256 } = checkedUpload(body, announced);
  const file = await open(path, "wx", 0o600);
  await pipeline(bytes, file.createWriteStream({ flush: true, highWaterMark: partBytes }));
  return sha256();
}

/**
 * Syncs a folder and all its parents up to `top`. A new folder is on disk only when its parent is
 * synced, and another `put` may have made it without syncing it yet.
 */
async function syncFolders(path: string, top: string): Promise<void> {
  await syncFolder(path);
  if (path !== top) await syncFolders(dirname(path), top);
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** A bucket of an S3-compatible service, and a key that may read, write, list and delete in it. */
interface S3Bucket {
  endpoint: string;
  bucket: string;
  region: string;
  accessKeyId: string;
  secretAccessKey: string;
  /** Whether an address has the bucket's name in its path; else the name comes before the host's. */
  pathStyle: boolean;
  /** Time limits for a connection, and for the next part of an answer. */
  timeoutMs: number;
}

export type S3Artifacts = ArtifactStore & {
  /**
   * Checks access to the bucket by listing one key.
   *
   * @throws S3Refusal when the service refuses; ArtifactOutage when it is out of reach.
   */
  check(): Promise<void>;
  close(): Promise<void>;
};

/** An S3 service's answer to a request that it refused. */
class S3Refusal extends Error {
  override name = "S3Refusal";
}

/**
 * Stores artifacts in an S3 bucket. An object is uploaded by one PUT of known length, and its last bytes
 * are sent only when its hash is right; the service checks an announced hash as well. So a broken upload leaves
 * nothing behind. An object has at most 5 GiB, the limit of a PUT.
 */
export function artifactsS3(settings: S3Bucket): S3Artifacts {
  const root = bucketUrl(settings);
  const pool = new Pool(root.origin, {
    connect: { timeout: settings.timeoutMs },
    headersTimeout: settings.timeoutMs,
    bodyTimeout: settings.timeoutMs,
  });

  const send = async (method: Method, path: string, request: Request = {}): Promise<Answer> => {
    const url = new URL(root.href + path);
    for (const [name, value] of Object.entries(request.query ?? {})) {
      url.searchParams.set(name, value);
    }
    const signed = await new AwsV4Signer({
      ...settings,
      service: "s3",
      method,
      url: url.href,
      headers: { "x-amz-content-sha256": emptySha256, ...request.headers },
    }).sign();
    try {
      return await pool.request({
        method,
        path: url.pathname + url.search,
        headers: { ...request.headers, ...Object.fromEntries(signed.headers) },
        body: request.body ?? null,
      });
    } catch (cause) {
      throw new ArtifactOutage("the artifact store does not answer", { cause });
    }
  };

  /** Lists a page of keys with a prefix, and where the next page begins. */
  const list = async (prefix: string, page?: string) => {
    const query = {
      "list-type": "2",
      prefix,
      ...(page !== undefined && { "continuation-token": page }),
    };
    const answer = await accepted(await send("GET", "", { query }), 200);
    const listed = parsedXml(await bodyText(answer));
    if (!listed) throw new ArtifactOutage("the artifact store's answer is not XML");
    return { keys: textsOf("Key", listed), next: textsOf("NextContinuationToken", listed)[0] };
  };

  return {
    async put(key, body, announced) {
      const parts = checkedUpload(body, announced);
      const headers = {
        "content-length": String(announced.sizeBytes),
        "content-type": "application/octet-stream",
        "x-amz-content-sha256": announced.sha256 ?? "UNSIGNED-PAYLOAD",
      };
      try {
        // Without this, the body of an empty object would never be read or checked.
        if (announced.sizeBytes === 0) await parts.bytes.next();
        const answer = await send("PUT", key, { headers, body: Readable.from(parts.bytes) });
        await (await accepted(answer, 200)).body.dump();
        return parts.sha256();
      } catch (error) {
        throw parts.fault() ?? error;
      }
    },
    async get(key, range) {
      const last = range && range.offset + range.length - 1;
      const headers = range ? { range: `bytes=${range.offset}-${last}` } : {};
      const answer = await send("GET", key, { headers });
      if (answer.statusCode === 404) {
        await answer.body.dump();
        return undefined;
      }
      const { body } = await accepted(answer, range ? 206 : 200);
      return toWeb(freed(body));
    },
    async remove(prefix) {
      let page: string | undefined;
      do {
        const { keys, next } = await list(`${prefix}/`, page);
        for (const key of keys) {
          const answer = await accepted(await send("DELETE", key), 204, 200, 404);
          await answer.body.dump();
        }
        page = next;
      } while (page !== undefined);
    },
    // The service stores nothing of a broken upload.
    removePartial: () => Promise.resolve(),
    async check() {
      await list("airlock-check/");
    },
    close: () => pool.destroy(),
  };
}

type Method = "GET" | "PUT" | "DELETE";
type Answer = Dispatcher.ResponseData;
interface Request {
  query?: Record<string, string>;
  headers?: Record<string, string>;
  body?: Readable;
}

const emptySha256 = createHash("sha256").digest("hex");

/** The base address of all keys. */
function bucketUrl({ endpoint, bucket, pathStyle }: S3Bucket): URL {
  const url = new URL(endpoint);
  const path = url.pathname.replace(/\/*$/, "/");
  if (pathStyle) return new URL(`${path}${bucket}/`, url);
  url.hostname = `${bucket}.${url.hostname}`;
  url.pathname = path;
  return url;
}

/** @throws ArtifactOutage with the service's message, unless its status is one of these. */
async function accepted(answer: Answer, ...statuses: number[]): Promise<Answer> {
  const { statusCode } = answer;
  if (statuses.includes(statusCode)) return answer;
  const xml = parsedXml(await bodyText(answer));
  const said = xml ? [...textsOf("Code", xml), ...textsOf("Message", xml)].join(": ") : "";
  const refusal = new S3Refusal(`${statusCode} ${said}`.trim());
  throw new ArtifactOutage("the artifact store refused a request", { cause: refusal });
}

async function bodyText({ body }: Answer): Promise<string> {
  try {
    return await body.text();
  } catch (cause) {
    throw new ArtifactOutage("the artifact store broke off its answer", { cause });
  }
}

/** The texts of all elements with a name. */
function textsOf(name: string, node: XmlNode): string[] {
  if (node instanceof XmlElement && node.name === name) return [node.text];
  const children = "children" in node ? (node.children as XmlNode[]) : [];
  return children.flatMap((child) => textsOf(name, child));
}

/** Undefined if the text is not XML. */
function parsedXml(text: string): XmlNode | undefined {
  try {
    return parseXml(text);
  } catch {
    return undefined;
  }
}

/**
 * A body that is complete only if its size and SHA-256 are the announced ones: its last part comes after the check.
 * `sha256` is its hash once it is complete, `fault` why it broke off.
 */
function checkedUpload(
  body: ReadableStream<Uint8Array>,
  { sizeBytes, sha256: announced }: Announced,
) {
  const hash = createHash("sha256");
  let sha256 = "";
  let fault: unknown;
  async function* bytes() {
    try {
      let size = 0;
      let last: Uint8Array = new Uint8Array();
      for await (const part of received(body)) {
        size += part.length;
        if (size > sizeBytes) throw new UploadMismatch();
        hash.update(part);
        if (last.length > 0) yield last;
        last = part;
      }
      sha256 = hash.digest("hex");
      if (size !== sizeBytes || (announced ?? sha256) !== sha256) throw new UploadMismatch();
      if (last.length > 0) yield last;
    } catch (error) {
      fault = error;
      throw error;
    }
  }
  return { bytes: bytes(), sha256: () => sha256, fault: () => fault };
}
