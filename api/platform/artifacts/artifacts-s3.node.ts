import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { parseXml, XmlElement, type XmlNode } from "@rgrove/parse-xml";
import { AwsV4Signer } from "aws4fetch";
import { type Dispatcher, Pool } from "undici";
import { ArtifactOutage, type ArtifactStore } from "../../deps.ts";
import { checkedUpload } from "./checked-upload.node.ts";

/** A bucket of an S3-compatible service, and a key that may read, write, list and delete in it. */
export interface S3Bucket {
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
export class S3Refusal extends Error {
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
