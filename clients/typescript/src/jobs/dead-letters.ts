import { type Ask, pages } from "../transport/ask.ts";
import type { DeadLetter, DeadLetterStats, ExecutionErrorType } from "../generated.ts";
import type { CallOptions } from "../transport/transport.ts";

/** Asynchronous jobs that failed. */
export interface DeadLetters {
  /** The newest first. */
  readonly list: (
    filters?: { error_type?: ExecutionErrorType; limit?: number },
    options?: CallOptions,
  ) => AsyncGenerator<DeadLetter, void>;
  readonly stats: (options?: CallOptions) => Promise<DeadLetterStats>;
  /** Removes an entry; the job's record stays. */
  readonly delete: (id: number, options?: CallOptions) => Promise<void>;
}

export function deadLetters(ask: Ask): DeadLetters {
  return {
    list: (filters = {}, options) =>
      pages<DeadLetter>(ask, "/dlq", { ...filters }, ({ id }) => id, options),
    stats: (options) => ask("/dlq/stats", {}, options),
    delete: async (id, options) => {
      await ask(`/dlq/${id}`, { method: "DELETE" }, options);
    },
  };
}
