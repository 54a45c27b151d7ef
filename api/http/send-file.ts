import type { Context } from "hono";
import type { Artifact } from "../../shared/wire/execution.ts";
import { contentDisposition, matchesEtag } from "../domain/files/content-disposition.ts";
import { byteRange, type ByteRange } from "../domain/files/byte-range.ts";
import { AppError } from "../errors.ts";
import type { StoredFile } from "../files/stored-file.ts";
import type { AppEnv } from "./context.ts";
import { holdBody } from "./json-page.ts";

/** A file that clients may download. */
export interface Download {
  /** How messages name it. */
  what: "The artifact" | "The file";
  file: Pick<Artifact, "name" | "size_bytes" | "sha256" | "content_type">;
  open: (range?: ByteRange) => Promise<ReadableStream<Uint8Array> | undefined>;
  /** Whether it is whole in memory once it is open. */
  isInMemory?: boolean;
}

/** Answers a download: HEAD with the headers alone, 304 if the client has the file. */
export async function sendDownload(
  c: Context<AppEnv>,
  { what, file, open, isInMemory = false }: Download,
): Promise<Response> {
  refusePart(c, what);
  const etag = `"${file.sha256}"`;
  const unchanged = { ETag: etag, "Cache-Control": "private, no-cache, no-transform" };
  const headers = {
    ...unchanged,
    "Content-Type": active.test(file.content_type) ? "application/octet-stream" : file.content_type,
    "Content-Disposition": contentDisposition(file.name),
    "Accept-Ranges": "bytes",
    // Its bytes are the code's: a browser must not use them as a part of a page.
    "Content-Security-Policy": "sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
  };
  if (matchesEtag(c.req.header("If-None-Match"), etag)) return c.body(null, 304, unchanged);
  const size = file.size_bytes;
  if (c.req.method === "HEAD") {
    return c.body(null, 200, { ...headers, "Content-Length": String(size) });
  }
  const opened = async (range?: ByteRange) => {
    const body = await open(range);
    if (!body) throw new Error(`the bytes of ${file.name} are missing`);
    return body;
  };
  return sendStored(c, { name: what, size, etag, headers, open: opened, isInMemory });
}

/**
 * Types that a browser runs or applies in the page that names them; with `nosniff`, not under another type.
 * It sends no `Sec-Fetch-Dest` to a plain http:// address of another machine.
 */
const active = /script|^text\/css/i;

/** What a browser may ask a download for: for itself (a link), for a script's fetch, and to show it. */
const shown = new Set(["document", "empty", "image", "audio", "video"]);

function refusePart(c: Context, what: Download["what"]): void {
  const use = c.req.header("Sec-Fetch-Dest");
  if (use === undefined || shown.has(use)) return;
  throw new AppError("forbidden", `${what} cannot be used as a page's ${use}: download it.`);
}

/**
 * Answers with the whole file, or with the part that `Range` asks for. `If-Range` limits that to the
 * version of the file that the client knows.
 *
 * @throws AppError 416 when the file has no such part; 503 when the answers under way have too many bytes in memory.
 */
export async function sendStored(c: Context<AppEnv>, file: StoredFile): Promise<Response> {
  const { name, size, etag, headers, open } = file;
  const asked = (c.req.header("If-Range") ?? etag) === etag ? c.req.header("Range") : undefined;
  const range = byteRange(asked, size);
  if (range === "unsatisfiable") {
    const more = { "Content-Range": `bytes */${size}` };
    throw new AppError("range_not_satisfiable", `${name} has ${size} bytes.`, {}, more);
  }
  const length = range?.length ?? size;
  const body = await (file.isInMemory ? holdBody(c, length, () => open(range)) : open(range));
  if (!range) return c.body(body, 200, { ...headers, "Content-Length": String(size) });
  return c.body(body, 206, {
    ...headers,
    "Content-Length": String(range.length),
    "Content-Range": `bytes ${range.offset}-${range.offset + range.length - 1}/${size}`,
  });
}
