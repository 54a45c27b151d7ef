import type { Api } from "./api.ts";
import type { UploadedFile } from "./generated.ts";
import type { CallOptions, Transport } from "./transport.ts";

/** What can be read again if the connection breaks. For a file on disk, Node has `fs.openAsBlob`. */
export type FileBody = Blob | Uint8Array<ArrayBuffer> | string;

export interface Files {
  /** Stores a file, for `files` of a job; after a break of the connection it is sent again. */
  readonly upload: (name: string, body: FileBody, options?: CallOptions) => Promise<UploadedFile>;
  /** The newest hundred. */
  readonly list: (options?: CallOptions) => Promise<UploadedFile[]>;
  /** The bytes of a file. */
  readonly get: (fileId: string, options?: CallOptions) => Promise<Uint8Array>;
  /** The file as it arrives, for those that do not fit into memory. */
  readonly open: (fileId: string, options?: CallOptions) => Promise<Response>;
  readonly delete: (fileId: string, options?: CallOptions) => Promise<void>;
}

/** A connection slower than this counts as broken. */
const SLOWEST_BYTES_PER_MS = 32;
const BASE_MS = 60_000;

export function files(api: Api, { send, open }: Transport): Files {
  return {
    upload: async (name, body, options) => {
      const blob = body instanceof Blob ? body : new Blob([body]);
      const headers = { "Content-Type": blob.type || "application/octet-stream" };
      const timeoutMs = BASE_MS + blob.size / SLOWEST_BYTES_PER_MS;
      const path = `/files?name=${encodeURIComponent(name)}`;
      const init = { method: "POST", headers, body: blob };
      return (await (await send(path, init, { timeoutMs, ...options })).json()) as UploadedFile;
    },
    list: async (options) => (await api.listFiles({}, options)).items,
    get: async (id, options) => {
      const answer = await send(pathOf(id), {}, options);
      return new Uint8Array(await answer.arrayBuffer());
    },
    open: (id, options) => open(pathOf(id), {}, options),
    delete: async (id, options) => {
      await api.deleteFile({ id }, options);
    },
  };
}

function pathOf(id: string): string {
  return `/files/${encodeURIComponent(id)}`;
}
