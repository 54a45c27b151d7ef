import { AirlockError } from "./errors.ts";

/** The delivery is not from the service, or too old: answer it with 400. */
export class WebhookError extends AirlockError {
  override name = "WebhookError";
}

/** The body of a delivery. */
export interface WebhookEvent {
  type: string;
  timestamp: string;
  data: Record<string, unknown>;
}

export interface VerifyOptions {
  /** How far the clocks of sender and receiver may be apart, and how late a delivery may come. Default 300. */
  toleranceS?: number;
  nowMs?: number;
}

/**
 * Checks the signature of a delivery (Standard Webhooks, v1), and parses it.
 *
 * @param body As it came: a body that was parsed and written again has another signature.
 * @param secrets The `whsec_` secrets that are valid now; two while they rotate.
 */
export async function verifyWebhook(
  body: string | Uint8Array,
  headers: Headers | Record<string, string | string[] | undefined>,
  secrets: string | readonly string[],
  { toleranceS = 300, nowMs = Date.now() }: VerifyOptions = {},
): Promise<WebhookEvent> {
  const [id, timestamp, signatures] = ["id", "timestamp", "signature"].map((name) => {
    const value = headerOf(headers, `webhook-${name}`);
    if (value) return value;
    throw new WebhookError(`The header webhook-${name} is missing.`);
  }) as [string, string, string];
  const ageS = Math.abs(nowMs / 1000 - Number(timestamp));
  if (!(ageS <= toleranceS)) {
    throw new WebhookError(`webhook-timestamp ${timestamp} is more than ${toleranceS} s away.`);
  }
  const text = typeof body === "string" ? body : new TextDecoder().decode(body);
  const signed = new TextEncoder().encode(`${id}.${timestamp}.${text}`);
  for (const secret of [secrets].flat()) {
    const key = await keyOf(secret);
    for (const signature of signaturesOf(signatures)) {
      if (await crypto.subtle.verify("HMAC", key, signature, signed)) {
        return JSON.parse(text) as WebhookEvent;
      }
    }
  }
  throw new WebhookError("No signature in webhook-signature is made with a secret given here.");
}

function headerOf(
  headers: Headers | Record<string, string | string[] | undefined>,
  name: string,
): string | undefined {
  if (headers instanceof Headers) return headers.get(name) ?? undefined;
  const found = Object.entries(headers).find(([key]) => key.toLowerCase() === name)?.[1];
  return Array.isArray(found) ? found[0] : found;
}

/** Node's types and those of browsers name it in different places. */
type Key = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

function keyOf(secret: string): Promise<Key> {
  const bytes = fromBase64(secret.replace(/^whsec_/, ""));
  if (!bytes) throw new WebhookError("A secret is not whsec_ and Base64.");
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  return crypto.subtle.importKey("raw", bytes, algorithm, false, ["verify"]);
}

function signaturesOf(header: string): Uint8Array<ArrayBuffer>[] {
  return header.split(" ").flatMap((part) => {
    const [version, signature = ""] = part.split(",");
    const bytes = version === "v1" ? fromBase64(signature) : undefined;
    return bytes ? [bytes] : [];
  });
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  } catch {
    return undefined;
  }
}
