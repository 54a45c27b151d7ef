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

/**
 * What signs the calls to receivers that a tenant's requests name: whoever verifies with one could sign for all
 * others that have it. The tenant `default` has the configured secret itself.
 */
export async function secretOf(tenant: string, secret: string): Promise<string> {
  return tenant === "default" ? secret : `whsec_${await hmac(secret, tenant)}`;
}

async function signature({ id, timestamp, body }: Call, secret: string): Promise<string> {
  return `v1,${await hmac(secret, `${id}.${timestamp}.${body}`)}`;
}

/** HMAC-SHA256 of a text, as base64. */
async function hmac(secret: string, text: string): Promise<string> {
  const bytes = fromBase64(secret.slice("whsec_".length));
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", bytes, algorithm, false, ["sign"]);
  const mac = await crypto.subtle.sign("HMAC", key, new TextEncoder().encode(text));
  return btoa(String.fromCharCode(...new Uint8Array(mac)));
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}
