import { type Ask, pathOf } from "../transport/ask.ts";
import type { Artifact } from "../generated.ts";
import type { CallOptions, Transport } from "../transport/transport.ts";

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
