import type { CallOptions, Transport } from "./transport.ts";

/** A file that requests can name by its `file_id`. */
export interface StoredFile {
  file_id: string;
  name: string;
  size_bytes: number;
  sha256: string;
  content_type: string;
  created_at: string;
  expires_at: string;
}

/** What can be read again if the connection breaks. For a file on disk, Node has `fs.openAsBlob`. */
export type FileBody = Blob | Uint8Array<ArrayBuffer> | string;

export interface Files {
  /** Stores a file; after a break of the connection it is sent again. */
  readonly upload: (name: string, body: FileBody, options?: CallOptions) => Promise<StoredFile>;
  readonly list: (options?: CallOptions) => Promise<StoredFile[]>;
  /** The bytes of a file. */
  readonly get: (fileId: string, options?: CallOptions) => Promise<Uint8Array>;
  readonly delete: (fileId: string, options?: CallOptions) => Promise<void>;
}

/** A slower line than this is taken for a broken one. */
const SLOWEST_BYTES_PER_MS = 32;
const BASE_MS = 60_000;

export function files({ send }: Transport): Files {
  return {
    upload: async (name, body, options) => {
      const blob = body instanceof Blob ? body : new Blob([body]);
      const headers = { "Content-Type": blob.type || "application/octet-stream" };
      const timeoutMs = BASE_MS + blob.size / SLOWEST_BYTES_PER_MS;
      const path = `/files?name=${encodeURIComponent(name)}`;
      const init = { method: "POST", headers, body: blob };
      return (await (await send(path, init, { timeoutMs, ...options })).json()) as StoredFile;
    },
    list: async (options) => {
      const page = (await (await send("/files", {}, options)).json()) as { items: StoredFile[] };
      return page.items;
    },
    get: async (fileId, options) =>
      new Uint8Array(await (await send(pathOf(fileId), {}, options)).arrayBuffer()),
    delete: async (fileId, options) => {
      await send(pathOf(fileId), { method: "DELETE" }, options);
    },
  };
}

const pathOf = (fileId: string): string => `/files/${encodeURIComponent(fileId)}`;
