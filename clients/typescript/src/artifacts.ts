import type { Artifact } from "./generated.ts";
import type { Api } from "./api.ts";
import type { CallOptions, Transport } from "./transport.ts";

export interface Artifacts {
  /** The files that a job wrote to /output. */
  readonly list: (jobId: string, options?: CallOptions) => Promise<Artifact[]>;
  /** The bytes of a file. */
  readonly get: (jobId: string, name: string, options?: CallOptions) => Promise<Uint8Array>;
  /** The file as it arrives, for those that do not fit into memory. */
  readonly open: (jobId: string, name: string, options?: CallOptions) => Promise<Response>;
}

export function artifacts(api: Api, { send, open }: Transport): Artifacts {
  return {
    list: async (id, options) => (await api.listArtifacts({ id }, options)).artifacts,
    get: async (jobId, name, options) => {
      const answer = await send(path(jobId, name), {}, options);
      return new Uint8Array(await answer.arrayBuffer());
    },
    open: (jobId, name, options) => open(path(jobId, name), {}, options),
  };
}

function path(jobId: string, name: string): string {
  const steps = ["jobs", jobId, "artifacts", ...name.split("/")];
  return `/${steps.map(encodeURIComponent).join("/")}`;
}
