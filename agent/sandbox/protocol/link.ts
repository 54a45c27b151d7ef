import type { Writable } from "node:stream";

/** The agent's side of a connection to a supervisor. */
export interface Link {
  readonly input: Writable;
  /**
   * The supervisor's frames; reading slowly slows the supervisor down. Ends when the supervisor
   * ends.
   */
  readonly output: AsyncIterable<Uint8Array>;
  /** The end of the supervisor's stderr, which says why it failed; never the code's output. */
  diagnostics(): string;
  /** Closes both directions; `output` ends or throws. */
  destroy(): void;
}
