/** What identifies a call; the headers of Standard Webhooks without `webhook-signature`. */
export interface Call {
  id: string;
  /** Seconds since the epoch. */
  timestamp: number;
  body: string;
}

/**
 * The headers of a call, signed with each secret: a receiver needs to know one of them.
 * Source: https://www.standardwebhooks.com
 */
export async function signedHeaders(call: Call, secrets: readonly string[]) {
  const signatures = await Promise.all(secrets.map((secret) => signature(call, secret)));
  return {
    "webhook-id": call.id,
    "webhook-timestamp": String(call.timestamp),
    "webhook-signature": signatures.join(" "),
  };
}

async function signature({ id, timestamp, body }: Call, secret: string): Promise<string> {
  const bytes = fromBase64(secret.slice("whsec_".length));
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", bytes, algorithm, false, ["sign"]);
  const signed = new TextEncoder().encode(`${id}.${timestamp}.${body}`);
  const mac = new Uint8Array(await crypto.subtle.sign("HMAC", key, signed));
  return `v1,${btoa(String.fromCharCode(...mac))}`;
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}
