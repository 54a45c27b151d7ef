/**
 * What a client gets with a sandbox, and sends for it in place of an API key: the key, sealed for this one session. So
 * nothing is stored, and a key that is revoked takes its tokens with it.
 */
export interface Tokens {
  seal(key: string | undefined, session: string): Promise<string>;
  /** The key; undefined if the token is not one of this session's. */
  open(token: string, session: string): Promise<string | undefined>;
}

const ivBytes = 12;

const importKey = (bytes: Uint8Array<ArrayBuffer>) =>
  crypto.subtle.importKey("raw", bytes, "AES-GCM", false, ["encrypt", "decrypt"]);

const algorithm = (iv: Uint8Array<ArrayBuffer>, session: string) => ({
  name: "AES-GCM",
  iv,
  additionalData: new TextEncoder().encode(session),
});

/** @param secret 32 bytes that all processes share. */
export function createTokens(secret: () => Promise<Uint8Array<ArrayBuffer>>): Tokens {
  let known: ReturnType<typeof importKey> | undefined;
  const aes = () => {
    known ??= secret().then(importKey);
    known.catch(() => (known = undefined));
    return known;
  };
  return {
    async seal(key = "", session) {
      const iv = crypto.getRandomValues(new Uint8Array(ivBytes));
      const text = new TextEncoder().encode(key);
      const sealed = await crypto.subtle.encrypt(algorithm(iv, session), await aes(), text);
      const bytes = [...iv, ...new Uint8Array(sealed)];
      return btoa(String.fromCharCode(...bytes))
        .replaceAll("+", "-")
        .replaceAll("/", "_")
        .replaceAll("=", "");
    },
    async open(token, session) {
      const secretKey = await aes();
      try {
        const text = atob(token.replaceAll("-", "+").replaceAll("_", "/"));
        const bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
        const iv = bytes.slice(0, ivBytes);
        const opened = await crypto.subtle.decrypt(
          algorithm(iv, session),
          secretKey,
          bytes.slice(ivBytes),
        );
        return new TextDecoder().decode(opened);
      } catch {
        return undefined;
      }
    },
  };
}
