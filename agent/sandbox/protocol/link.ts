import type { Writable } from "node:stream";

/** The two ends of a supervisor that the agent holds. */
export interface Link {
  readonly input: Writable;
  /** What the supervisor sends; reading slowly slows it down. Ends when the supervisor does. */
  readonly output: AsyncIterable<Uint8Array>;
  /** The last of the supervisor's own stderr: why it failed, never the code's output. */
  diagnostics(): string;
  /** Ends both ends; `output` ends or throws. */
  destroy(): void;
}
