import { type Ask, pathOf } from "../transport/ask.ts";
import type { Batch } from "../generated.ts";
import type { CallOptions } from "../transport/transport.ts";

/** The state of batches, by `batch_id`. `list` has their jobs. */
export interface Batches {
  /** How many of its jobs have each status. */
  readonly get: (batchId: string, options?: CallOptions) => Promise<Batch>;
  /** Cancels the jobs of a batch that have not ended. */
  readonly cancel: (batchId: string, options?: CallOptions) => Promise<Batch>;
}

export function batches(ask: Ask): Batches {
  return {
    get: async (id, options) => ask(pathOf("batches", id), {}, options),
    cancel: async (id, options) =>
      ask(`${pathOf("batches", id)}/cancel`, { method: "POST" }, options),
  };
}
