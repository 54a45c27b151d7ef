import { Refusal } from "../facade.ts";

/** The Connect protocol with JSON. Source: connectrpc.com/docs/protocol. */

const codes: Readonly<Record<number, string>> = {
  400: "invalid_argument",
  401: "unauthenticated",
  403: "permission_denied",
  404: "not_found",
  409: "failed_precondition",
  413: "resource_exhausted",
  422: "invalid_argument",
  429: "resource_exhausted",
  501: "unimplemented",
  502: "unavailable",
  503: "unavailable",
};

export const streamType = "application/connect+json";

/** An error of a call that has one of Connect's codes. */
export interface ConnectError {
  readonly code: string;
  readonly message: string;
}

const statuses: Readonly<Record<string, number>> = {
  ...Object.fromEntries(Object.entries(codes).map(([status, code]) => [code, Number(status)])),
  invalid_argument: 400,
  already_exists: 409,
};

export const errorOf = ({ status, message }: Refusal): ConnectError => {
  return { code: codes[status] ?? "internal", message };
};

/** The answer of a call that has one message. */
export function refuseCall(error: ConnectError): Response {
  return Response.json(error, { status: statuses[error.code] ?? 500 });
}

/** Before each message of a stream: flags, and its length. */
const headBytes = 5;
const last = 2;

export function frame(message: object, flags = 0): Uint8Array {
  const text = new TextEncoder().encode(JSON.stringify(message));
  const bytes = new Uint8Array(headBytes + text.length);
  bytes[0] = flags;
  new DataView(bytes.buffer).setUint32(1, text.length);
  bytes.set(text, headBytes);
  return bytes;
}

/** The end of a stream: it has an error, or none. */
export const lastFrame = (error?: ConnectError): Uint8Array => frame(error ? { error } : {}, last);

/** The answer of a call that has a stream of messages. Its status is 200. */
export function failedStream(refusal: Refusal): Response {
  const body = lastFrame(errorOf(refusal)) as Uint8Array<ArrayBuffer>;
  return new Response(body, { headers: { "Content-Type": streamType } });
}

/** The text of the one message that a client sends. @throws Refusal 400 */
export function readFrame(body: Uint8Array): string {
  const message = body.subarray(headBytes);
  const isWhole =
    body.length >= headBytes &&
    body[0] === 0 &&
    new DataView(body.buffer, body.byteOffset).getUint32(1) === message.length;
  if (isWhole) return new TextDecoder().decode(message);
  throw new Refusal(400, "The body is not one message of Connect, uncompressed.");
}
