import { EngineError, type EngineErrorCode } from "../sandbox/errors.ts";

/**
 * What the engine's client throws: an answer with an error status, or a failure without an answer.
 */
interface ClientError {
  readonly message: string;
  readonly statusCode?: number;
}

/**
 * Translates an error of the engine's client to an EngineError; only this file knows the engine's
 * wording.
 */
export function engineError(error: unknown): EngineError {
  if (error instanceof EngineError) return error;
  const { message, statusCode } = error as ClientError;
  return new EngineError(codeOf(message, statusCode), message.trim(), {
    cause: error,
    transient: statusCode === undefined || statusCode >= 500,
  });
}

/** @throws EngineError always: a container of the agent itself failed and wrote this to stderr. */
export function failedContainer(what: string, stderr: string): never {
  throw new EngineError(isDiskFull(stderr) ? "disk_full" : "other", `${what}: ${stderr.trim()}`);
}

/** Matches the messages of the C library, which engines and Python pass on. */
function isDiskFull(message: string): boolean {
  return /no space left on device|disk quota exceeded/i.test(message);
}

function codeOf(message: string, statusCode: number | undefined): EngineErrorCode {
  if (statusCode === undefined) return "unavailable";
  if (statusCode >= 500 && isDiskFull(message)) return "disk_full";
  if (statusCode === 404 && /no such image|image not known/i.test(message)) {
    return "image_not_found";
  }
  // The messages of runc and of gVisor.
  if (/executable file not found|exec(utable)?:? .*no such file or directory/i.test(message)) {
    return "command_not_found";
  }
  return statusCode === 409 ? "conflict" : "other";
}
