import { AirlockError } from "./errors.ts";
import type { Artifact, UploadedFile } from "./generated.ts";
import { type Ask, type CallOptions, pages, pathOf, type Transport } from "./transport.ts";

/** What can be read again if the connection breaks. For a file on disk, Node has `fs.openAsBlob`. */
export type FileBody = Blob | Uint8Array<ArrayBuffer> | string;

/** How long an upload of so many bytes may take. */
export const uploadMs = (bytes: number): number => BASE_MS + bytes / SLOWEST_BYTES_PER_MS;

/** A connection slower than this counts as broken. */
const SLOWEST_BYTES_PER_MS = 32;
const BASE_MS = 60_000;

export type Files = Readonly<ReturnType<typeof files>>;

export function files(ask: Ask, { send, open }: Transport) {
  return {
    /** Stores a file, for `files` of a job; after a break of the connection it is sent again. */
    upload: async (name: string, body: FileBody, options?: CallOptions): Promise<UploadedFile> => {
      const blob = toBlob(body);
      const what = { method: "POST", query: { name }, body: blob } as const;
      return ask("/files", what, { timeoutMs: uploadMs(blob.size), ...options });
    },
    /** All of them, the newest first. */
    list: async (options?: CallOptions): Promise<UploadedFile[]> => {
      const found: UploadedFile[] = [];
      const all = pages<UploadedFile>(ask, "/files", {}, ({ file_id }) => file_id, options);
      for await (const file of all) found.push(file);
      return found;
    },
    /** The bytes of a file. */
    get: async (fileId: string, options?: CallOptions): Promise<Uint8Array> =>
      bytesOf(await send(pathOf("files", fileId), {}, options)),
    /** The file as it arrives, for those that do not fit into memory. */
    open: async (fileId: string, options?: CallOptions): Promise<Response> =>
      open(pathOf("files", fileId), {}, options),
    delete: async (fileId: string, options?: CallOptions): Promise<void> => {
      await ask(pathOf("files", fileId), { method: "DELETE" }, options);
    },
  };
}

export const bytesOf = async (answer: Response): Promise<Uint8Array> =>
  new Uint8Array(await answer.arrayBuffer());

/** @throws AirlockError for a value that would be stored as its text, such as a stream. */
export function toBlob(body: unknown): Blob {
  if (body instanceof Blob) return body;
  if (typeof body === "string" || body instanceof ArrayBuffer || ArrayBuffer.isView(body)) {
    return new Blob([body as string | ArrayBuffer]);
  }
  throw new AirlockError(
    "A file is a Blob, bytes or text: of a stream, give new Response(stream).blob().",
  );
}

export type Artifacts = Readonly<ReturnType<typeof artifacts>>;

export function artifacts(ask: Ask, { send, open }: Transport) {
  return {
    /** The files that a job wrote to /output. */
    list: async (jobId: string, options?: CallOptions): Promise<Artifact[]> => {
      const path = `${pathOf("jobs", jobId)}/artifacts`;
      return (await ask<{ artifacts: Artifact[] }>(path, {}, options)).artifacts;
    },
    /** The bytes of a file. */
    get: async (jobId: string, name: string, options?: CallOptions): Promise<Uint8Array> =>
      bytesOf(await send(fileOf(jobId, name), {}, options)),
    /** The file as it arrives, for those that do not fit into memory. */
    open: async (jobId: string, name: string, options?: CallOptions): Promise<Response> =>
      open(fileOf(jobId, name), {}, options),
  };
}

function fileOf(jobId: string, name: string): string {
  return pathOf("jobs", jobId, "artifacts", ...name.split("/"));
}
