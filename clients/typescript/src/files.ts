import { AirlockError } from "./errors.ts";
import type { Artifact, UploadedFile } from "./generated.ts";
import { type Ask, type CallOptions, pages, pathOf, type Transport } from "./transport.ts";

/** What can be read again if the connection breaks. For a file on disk, Node has `fs.openAsBlob`. */
export type FileBody = Blob | Uint8Array<ArrayBuffer> | string;

export interface Files {
  /** Stores a file, for `files` of a job; after a break of the connection it is sent again. */
  readonly upload: (name: string, body: FileBody, options?: CallOptions) => Promise<UploadedFile>;
  /** All of them, the newest first. */
  readonly list: (options?: CallOptions) => Promise<UploadedFile[]>;
  /** The bytes of a file. */
  readonly get: (fileId: string, options?: CallOptions) => Promise<Uint8Array>;
  /** The file as it arrives, for those that do not fit into memory. */
  readonly open: (fileId: string, options?: CallOptions) => Promise<Response>;
  readonly delete: (fileId: string, options?: CallOptions) => Promise<void>;
}

/** How long an upload of so many bytes may take. */
export const uploadMs = (bytes: number): number => BASE_MS + bytes / SLOWEST_BYTES_PER_MS;

/** A connection slower than this counts as broken. */
const SLOWEST_BYTES_PER_MS = 32;
const BASE_MS = 60_000;

export function files(ask: Ask, { send, open }: Transport): Files {
  return {
    upload: async (name, body, options) => {
      const blob = toBlob(body);
      const what = { method: "POST", query: { name }, body: blob } as const;
      return ask("/files", what, { timeoutMs: uploadMs(blob.size), ...options });
    },
    list: async (options) => {
      const found: UploadedFile[] = [];
      for await (const file of pages<UploadedFile>(
        ask,
        "/files",
        {},
        (one) => one.file_id,
        options,
      )) {
        found.push(file);
      }
      return found;
    },
    get: async (id, options) => {
      const answer = await send(pathOf("files", id), {}, options);
      return new Uint8Array(await answer.arrayBuffer());
    },
    open: async (id, options) => open(pathOf("files", id), {}, options),
    delete: async (id, options) => {
      await ask(pathOf("files", id), { method: "DELETE" }, options);
    },
  };
}

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

export interface Artifacts {
  /** The files that a job wrote to /output. */
  readonly list: (jobId: string, options?: CallOptions) => Promise<Artifact[]>;
  /** The bytes of a file. */
  readonly get: (jobId: string, name: string, options?: CallOptions) => Promise<Uint8Array>;
  /** The file as it arrives, for those that do not fit into memory. */
  readonly open: (jobId: string, name: string, options?: CallOptions) => Promise<Response>;
}

export function artifacts(ask: Ask, { send, open }: Transport): Artifacts {
  return {
    list: async (id, options) => {
      const path = `${pathOf("jobs", id)}/artifacts`;
      return (await ask<{ artifacts: Artifact[] }>(path, {}, options)).artifacts;
    },
    get: async (jobId, name, options) => {
      const answer = await send(fileOf(jobId, name), {}, options);
      return new Uint8Array(await answer.arrayBuffer());
    },
    open: async (jobId, name, options) => open(fileOf(jobId, name), {}, options),
  };
}

function fileOf(jobId: string, name: string): string {
  return pathOf("jobs", jobId, "artifacts", ...name.split("/"));
}
