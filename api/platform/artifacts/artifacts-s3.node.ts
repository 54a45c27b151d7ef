import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { parseXml, XmlElement, type XmlNode } from "@rgrove/parse-xml";
import { AwsV4Signer } from "aws4fetch";
import { type Dispatcher, Pool } from "undici";
import { type Announced, ArtifactOutage, type ArtifactStore, UploadMismatch } from "../../deps.ts";
import { received } from "../../http/read-body.ts";

/** A bucket of any S3-compatible service, and the key that may read, write, list and delete there. */
export interface S3Bucket {
  endpoint: string;
  bucket: string;
  region: string;
  accessKeyId: string;
  secretAccessKey: string;
  /** Whether the bucket's name stands in the path of an address, or before the host's. */
  pathStyle: boolean;
  /** How long the service may take for a connection, and to go on with what it has begun. */
  timeoutMs: number;
}

export type S3Artifacts = ArtifactStore & {
  /**
   * Asks for one key of the bucket.
   *
   * @throws S3Refusal when the service does not let us; ArtifactOutage when it cannot be asked.
   */
  check(): Promise<void>;
  close(): Promise<void>;
};

/** What an S3 service said to a request that it did not carry out. */
export class S3Refusal extends Error {
  override name = "S3Refusal";
}

/**
 * Artifacts in an S3 bucket. An object appears whole, by one PUT of known length whose last bytes
 * are sent when its hash is known to be right; the service checks the hash once more. So a broken
 * upload leaves nothing, and no object can be above 5 GiB, the most that a PUT may bring.
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

  /** The page of keys that begin with a prefix, and where the next one begins. */
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
      const parts = checked(body, announced);
      const headers = {
        "content-length": String(announced.sizeBytes),
        "content-type": "application/octet-stream",
        "x-amz-content-sha256": announced.sha256,
      };
      try {
        // Of an empty object nothing would be asked for, nor checked.
        if (announced.sizeBytes === 0) await parts.bytes.next();
        const answer = await send("PUT", key, { headers, body: Readable.from(parts.bytes) });
        await (await accepted(answer, 200)).body.dump();
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
      return Readable.toWeb(body) as ReadableStream<Uint8Array>;
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
    // What was not sent to its end, the service keeps nothing of.
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

/** The address that keys are added to. */
function bucketUrl({ endpoint, bucket, pathStyle }: S3Bucket): URL {
  const url = new URL(endpoint);
  const path = url.pathname.replace(/\/*$/, "/");
  if (pathStyle) return new URL(`${path}${bucket}/`, url);
  url.hostname = `${bucket}.${url.hostname}`;
  url.pathname = path;
  return url;
}

/**
 * A body that ends only where size and SHA-256 are as announced: the part that would complete it is
 * given out once they are known. `fault` is why it broke off.
 */
function checked(
  body: ReadableStream<Uint8Array>,
  { sizeBytes, sha256 }: Announced,
): { bytes: AsyncGenerator<Uint8Array>; fault: () => unknown } {
  const hash = createHash("sha256");
  let fault: unknown;
  async function* bytes() {
    try {
      let size = 0;
      let last: Uint8Array = new Uint8Array();
      for await (const part of received(body)) {
        size += part.length;
        if (size > sizeBytes) throw mismatch();
        hash.update(part);
        if (last.length > 0) yield last;
        last = part;
      }
      if (size !== sizeBytes || hash.digest("hex") !== sha256) throw mismatch();
      if (last.length > 0) yield last;
    } catch (error) {
      fault = error;
      throw error;
    }
  }
  return { bytes: bytes(), fault: () => fault };
}

function mismatch(): UploadMismatch {
  return new UploadMismatch("Size or SHA-256 of the upload differ from its headers.");
}

/** @throws ArtifactOutage with what the service says, unless its status is one of these. */
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

/** The texts of all elements of a name. */
function textsOf(name: string, node: XmlNode): string[] {
  if (node instanceof XmlElement && node.name === name) return [node.text];
  const children = "children" in node ? (node.children as XmlNode[]) : [];
  return children.flatMap((child) => textsOf(name, child));
}

/** Undefined where it is not XML. */
function parsedXml(text: string): XmlNode | undefined {
  try {
    return parseXml(text);
  } catch {
    return undefined;
  }
}
