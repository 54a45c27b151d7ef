import { AppError } from "../errors.ts";

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
    throw new AppError("invalid_request", "The body broke off before its end.");
  }
}
