import { AppError } from "../errors.ts";

interface Keyed {
  idempotency_key?: string | undefined;
}

/**
 * Gives a request the idempotency key of its header.
 *
 * @throws AppError 400 when it has two that differ.
 */
export function keyed<T extends Keyed>(
  request: T,
  { "Idempotency-Key": header }: { "Idempotency-Key"?: string | undefined },
): T {
  const field = request.idempotency_key;
  if (field !== undefined && header !== undefined && field !== header) {
    const message = "must be the same as the header Idempotency-Key, if both are given";
    throw new AppError("invalid_request", `idempotency_key: ${message}`, {
      errors: [{ path: "idempotency_key", message }],
    });
  }
  if (header !== undefined) request.idempotency_key = header;
  return request;
}
