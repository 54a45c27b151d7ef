export type EngineErrorCode =
  | "unavailable"
  | "image_not_found"
  | "conflict"
  | "command_not_found"
  | "disk_full"
  /** The mother or a zygote failed; the engine may be well. */
  | "not_forked"
  | "other";

const transientCodes: readonly EngineErrorCode[] = [
  "unavailable",
  "disk_full",
  "not_forked",
  "other",
];

/**
 * The engine failed, or a container failed before its code started. If `transient`, a retry may
 * succeed.
 */
export class EngineError extends Error {
  override name = "EngineError";
  readonly code: EngineErrorCode;
  readonly transient: boolean;

  constructor(
    code: EngineErrorCode,
    message: string,
    { cause, transient }: { cause?: unknown; transient?: boolean } = {},
  ) {
    super(message, { cause });
    this.code = code;
    this.transient = transient ?? transientCodes.includes(code);
  }
}
