import { AppError } from "../errors.ts";

/**
 * A request's body, where its length is known to be bounded.
 *
 * @throws AppError 400 when the client breaks it off.
 */
export async function readBody(request: Request): Promise<Uint8Array> {
  try {
    return new Uint8Array(await request.arrayBuffer());
  } catch {
    throw brokenOff();
  }
}

/**
 * The parts of a request's body.
 *
 * @throws AppError 400 when the client breaks it off, which is no fault of the service.
 */
export async function* received(
  body: ReadableStream<Uint8Array> | null,
): AsyncGenerator<Uint8Array, void, void> {
  try {
    if (body) yield* body;
  } catch {
    throw brokenOff();
  }
}

function brokenOff(): AppError {
  return new AppError("invalid_request", "The body broke off before its end.");
}
