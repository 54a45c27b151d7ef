import type { Context } from "hono";
import { concatBytes } from "../../shared/bytes.ts";
import { writeJsonInPieces } from "../../shared/json.ts";
import { takeBytes } from "../../shared/turns.ts";
import type { Artifact } from "../../shared/wire/executions.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import type { StoredFile } from "../files/files.ts";
import { byteRange, type ByteRange } from "../files/rules.ts";
import { type LongField, longFields } from "../jobs/read.ts";
import type { AppEnv, HeldBytes } from "./context.ts";

/** Answers with JSON that may be large. Long fields of a record are read while it is sent. */
export async function jsonRecord(
  c: Context<AppEnv>,
  record: object,
  headers: Record<string, string> = {},
): Promise<Response> {
  const parts = await partsOf(record);
  const [only] = parts;
  if (parts.length > 1 || !(only instanceof Uint8Array) || only.length > smallBytes) {
    return sendParts(c, sent(parts, c.get("answer")), sumOf(parts), headers);
  }
  return c.body(only, 200, { ...headers, "Content-Type": "application/json" });
}

/** Rows are rendered together up to so many items or bytes; the last one may have more. A page may have gigabytes, so it is never whole in memory. */
const atOnce = { items: 32, bytes: 1024 * 1024 };

/**
 * Answers with a page of a list, and reads its items while it sends them.
 *
 * @param found One row more than the limit, if there are more.
 * @param bytesOf About how many bytes the item of a row reads from the database.
 */
export function jsonPage<Row>(
  c: Context<AppEnv>,
  found: Row[],
  { limit, offset }: { limit: number; offset: number },
  bytesOf: (row: Row) => number,
  render: (some: Row[]) => Promise<unknown[]>,
): Response {
  const rows = found.slice(0, limit);
  const page = { limit, offset, has_more: found.length > limit, count: rows.length };
  const held = c.get("answer");
  async function* pieces(): Pieces {
    const parts: Part[] = [utf8.encode('{"items":[')];
    let next = 0;
    while (next < rows.length) {
      if (next > 0) yield* sent(parts, held);
      const some = together(rows, next, bytesOf);
      for (const [n, item] of (await render(some)).entries()) {
        if (next + n > 0) add(parts, comma);
        for (const part of await partsOf(item)) add(parts, part);
      }
      next += some.length;
      held.add(sumOf(parts));
    }
    add(parts, utf8.encode(`],${JSON.stringify(page).slice(1)}`));
    yield* sent(parts, held);
  }
  return sendParts(c, pieces(), 0);
}

/** The rows from one on that are rendered together. */
function together<Row>(rows: Row[], from: number, bytesOf: (row: Row) => number): Row[] {
  let to = from;
  for (let bytes = 0; to < rows.length && to - from < atOnce.items && bytes < atOnce.bytes; to++)
    bytes += bytesOf(rows[to]!);
  return rows.slice(from, to);
}

/** What is in memory, or is read while it is sent. */
type Part = Uint8Array<ArrayBuffer> | LongField;
type Pieces = AsyncGenerator<string | Uint8Array<ArrayBuffer>>;

/** Less is not counted. Answers of events and files have less: they are read as their clients take them. */
const smallBytes = 64 * 1024;
/** The least that a client must take of an answer that counts. A line of 64 kB/s takes so much in four seconds. */
const taken = { bytes: 256 * 1024, ms: 30_000 };
/** The least that a piece takes of its turn: to make the items of a list is work, however small they are. */
const leastBytes = 32 * 1024;

const bytesOf = (part: Part): number => {
  const bytes = part instanceof Uint8Array ? part.length : part.bytesAtOnce;
  return bytes > smallBytes ? bytes : 0;
};
const sumOf = (parts: Part[]): number => parts.reduce((sum, part) => sum + bytesOf(part), 0);

const utf8 = new TextEncoder();
const comma = utf8.encode(",");

async function partsOf(value: unknown): Promise<Part[]> {
  const long = typeof value === "object" && value !== null ? longFields.get(value) : undefined;
  if (!long) return [await writeJsonInPieces(value)];
  const parts: Part[] = [];
  let separator = "{";
  for (const [name, field] of Object.entries(value as object)) {
    if (field === undefined) continue;
    parts.push(utf8.encode(`${separator}${JSON.stringify(name)}:`));
    separator = ",";
    parts.push(long[name] ?? (await writeJsonInPieces(field)));
  }
  parts.push(utf8.encode("}"));
  return parts;
}

/** Appends a part. Small parts are joined, because each part is a piece that the server sends by itself. */
function add(parts: Part[], part: Part): void {
  const last = parts.at(-1);
  const areBytes = last instanceof Uint8Array && part instanceof Uint8Array;
  if (areBytes && last.length + part.length <= smallBytes)
    parts.splice(-1, 1, concatBytes([last, part]));
  else parts.push(part);
}

/** Yields parts, of which each counts until it is taken. */
async function* sent(parts: Part[], held: HeldBytes): Pieces {
  for (let part = parts.shift(); part; part = parts.shift()) {
    if (part instanceof Uint8Array) yield part;
    else yield* part.read();
    held.add(-bytesOf(part));
  }
}

/**
 * Sends an answer in pieces, as its client takes them.
 *
 * @param bytes What it has in memory at first.
 * @throws AppError 503 when the answers of its client, or of all, would have too many. Runs ask before they begin.
 */
function sendParts(
  c: Context<AppEnv>,
  parts: Pieces,
  bytes: number,
  headers: Record<string, string> = {},
): Response {
  const held = c.get("answer");
  // The answer to HEAD is never read.
  if (c.req.method === "GET") held.take(bytes);
  else if (c.req.method !== "HEAD") held.add(bytes);
  const body = takenInTime(held, {
    async next() {
      const step = await parts.next();
      if (step.done === true) return undefined;
      return typeof step.value === "string" ? utf8.encode(step.value) : step.value;
    },
    cancel: async () => parts.return(undefined),
  });
  // The context adds the headers that the middleware has set; a new Response would not.
  return c.body(body, 200, { ...headers, "Content-Type": "application/json" });
}

/** Sends a body that is whole in memory as its client takes it. Its bytes count until then. */
export async function holdBody(
  c: Context<AppEnv>,
  bytes: number,
  open: () => Promise<ReadableStream<Uint8Array>>,
): Promise<ReadableStream<Uint8Array>> {
  const held = c.get("answer");
  if (bytes <= smallBytes || !held.isBounded) return open();
  held.take(bytes);
  const reader = (await open()).getReader();
  return takenInTime(held, {
    next: async () => (await reader.read()).value,
    cancel: async (reason) => reader.cancel(reason),
  });
}

/** The same for an answer that was made elsewhere. Each part counts while it is in memory. */
export function holdAnswer(c: Context<AppEnv>, answer: Response): Response {
  const held = c.get("answer");
  const reader = held.isBounded ? answer.body?.getReader() : undefined;
  if (!reader) return answer;
  const body = takenInTime(held, {
    async next() {
      held.release();
      const part = (await reader.read()).value as Uint8Array<ArrayBuffer> | undefined;
      if (part) held.add(bytesOf(part));
      return part;
    },
    cancel: async (reason) => reader.cancel(reason),
  });
  return new Response(body, answer);
}

/** The body of an answer. It breaks off if its client takes too long for a piece while its bytes count. */
function takenInTime(
  held: HeldBytes,
  source: {
    next: () => Promise<Uint8Array | undefined>;
    cancel: (reason?: unknown) => Promise<unknown>;
  },
): ReadableStream<Uint8Array> {
  let rest: Uint8Array | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const cancel = async (reason?: unknown): Promise<void> => {
    clearTimeout(timer);
    rest = undefined;
    // The source may make another piece before it is cancelled. That piece counts until then.
    await source.cancel(reason).finally(() => held.release());
  };
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        clearTimeout(timer);
        try {
          if (rest === undefined) {
            const giveBack = await takeBytes(taken.bytes);
            rest = await source.next();
            const used = Math.min(Math.max(rest?.length ?? 0, leastBytes), taken.bytes);
            giveBack(taken.bytes - used);
          }
        } catch (error) {
          held.release();
          throw error;
        }
        if (rest === undefined) {
          held.release();
          return controller.close();
        }
        controller.enqueue(rest.subarray(0, taken.bytes));
        rest = rest.length > taken.bytes ? rest.subarray(taken.bytes) : undefined;
        if (held.bytes() === 0) return;
        timer = setTimeout(() => {
          const least = `${taken.bytes} bytes in ${taken.ms / 1000} s`;
          controller.error(new Error(`the client took less of its answer than ${least}`));
          void cancel().catch(() => {});
        }, taken.ms);
      },
      cancel,
    },
    { highWaterMark: 0 },
  );
}

const space = new TextEncoder().encode(" ");
const unbuffered = "X-Accel-Buffering";

/** Whether `patientJson` has begun an answer before its JSON was ready. */
export const isUnderWay = ({ headers }: Response): boolean => headers.has(unbuffered);

/**
 * Answers with JSON that may take long. After `silenceMs`, and once the status is sure to be 200, the answer begins with
 * white space, which is repeated until the JSON is ready. If the work fails after that, the answer breaks off.
 *
 * @param isSure Resolves when the status cannot change any more.
 * @param work Makes the answer. Its signal aborts when the client hangs up.
 */
export async function patientJson<R extends Response>(
  c: Context<AppEnv>,
  { silenceMs, waitUntil }: Pick<Deps, "silenceMs" | "waitUntil">,
  isSure: Promise<void>,
  work: (signal: AbortSignal) => Promise<R>,
): Promise<R> {
  const hungUp = new AbortController();
  const answer = work(AbortSignal.any([c.req.raw.signal, hungUp.signal]));
  const early = (await within(silenceMs, answer)) ?? (await Promise.race([answer, isSure]));
  if (early) return early;
  waitUntil(
    answer.catch(() => {}),
    "synchronous",
  );
  let rest: ReadableStreamDefaultReader<Uint8Array> | undefined;
  const parts = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(space),
    async pull(controller) {
      if (!rest) {
        const whole = await within(silenceMs, answer);
        if (!whole) return controller.enqueue(space);
        if (whole.status !== 200) throw new Error(`the answer became ${whole.status}`);
        rest = whole.body!.getReader();
      }
      const part = await rest.read();
      if (part.done) controller.close();
      else controller.enqueue(part.value);
    },
    cancel() {
      hungUp.abort();
      waitUntil(answer.then(async ({ body }) => (rest ?? body)?.cancel()).catch(() => {}));
    },
  });
  // What compresses holds white space back.
  const headers = {
    "Content-Type": "application/json",
    "Cache-Control": "private, no-store, no-transform",
    [unbuffered]: "no",
  };
  return c.body(parts, 200, headers) as Response as R;
}

/** What the promise resolves to; undefined if that takes longer. */
export async function within<T>(ms: number, promise: Promise<T>): Promise<T | undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

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

/** Builds `Content-Disposition` for any name: an ASCII fallback and the exact name (RFC 6266, RFC 8187). */
function contentDisposition(name: string): string {
  const base = name.slice(name.lastIndexOf("/") + 1);
  const fallback = base.replaceAll(/[^\x20-\x7e]|["\\%]/g, "_");
  const exact = encodeURIComponent(base).replaceAll(
    /['()*]/g,
    (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `attachment; filename="${fallback}"; filename*=UTF-8''${exact}`;
}

/** Whether an `If-None-Match` header names this entity tag (RFC 9110, weak comparison). */
function matchesEtag(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false;
  if (header.trim() === "*") return true;
  return [...header.matchAll(/(?:W\/)?("[^"]*")/g)].some(([, tag]) => tag === etag);
}
