import type { SessionContext, SessionFile } from "../generated.ts";
import { type FileBody, toBlob, uploadMs } from "../jobs/files.ts";
import { type Ask, pathOf } from "../transport/ask.ts";
import type { CallOptions, Transport } from "../transport/transport.ts";

/** Files of a session, in the order of its calls. Paths are relative to its working directory, /output. */
export interface SessionFiles {
  /** Writes a file, and the folders of its path; replaces an existing one. */
  readonly write: (path: string, body: FileBody, options?: CallOptions) => Promise<void>;
  /** The bytes of a file. */
  readonly read: (path: string, options?: CallOptions) => Promise<Uint8Array>;
  /** The file as it arrives, for those that do not fit into memory. */
  readonly open: (path: string, options?: CallOptions) => Promise<Response>;
  /** What a folder has, by name. Default: /output. */
  readonly list: (path?: string, options?: CallOptions) => Promise<SessionFile[]>;
  /** Removes a file, or a folder with all that it has. */
  readonly delete: (path: string, options?: CallOptions) => Promise<void>;
}

/** The interpreters of a session. Each has variables of its own; files are shared. */
export interface SessionContexts {
  /** Starts another interpreter; calls choose it as `context: it.context_id`. */
  readonly create: (options?: CallOptions) => Promise<SessionContext>;
  /** All of them, the first one `default`. */
  readonly list: (options?: CallOptions) => Promise<SessionContext[]>;
  /** Ends one that has no open call. */
  readonly delete: (contextId: string, options?: CallOptions) => Promise<void>;
}

export function sessionFiles(folder: string, ask: Ask, { send, open }: Transport): SessionFiles {
  const fileOf = (path: string): string => folder + pathOf(...path.split("/"));
  return {
    write: async (path, body, options) => {
      const blob = toBlob(body);
      const call = { timeoutMs: uploadMs(blob.size), ...options };
      await ask(fileOf(path), { method: "PUT", body: blob }, call);
    },
    read: async (path, options) =>
      new Uint8Array(await (await send(fileOf(path), {}, options)).arrayBuffer()),
    open: async (path, options) => open(fileOf(path), {}, options),
    list: async (path, options) =>
      (await ask<{ items: SessionFile[] }>(folder, { query: { path } }, options)).items,
    delete: (path, options) => ask(fileOf(path), { method: "DELETE" }, options),
  };
}

export function sessionContexts(path: string, ask: Ask): SessionContexts {
  return {
    create: (options) => ask(path, { method: "POST" }, options),
    list: async (options) => (await ask<{ items: SessionContext[] }>(path, {}, options)).items,
    delete: async (id, options) => ask(path + pathOf(id), { method: "DELETE" }, options),
  };
}
