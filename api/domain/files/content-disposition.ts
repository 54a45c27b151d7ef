/** Builds `Content-Disposition` for any name: an ASCII fallback and the exact name (RFC 6266, RFC 8187). */
export function contentDisposition(name: string): string {
  const base = name.slice(name.lastIndexOf("/") + 1);
  const fallback = base.replaceAll(/[^\x20-\x7e]|["\\%]/g, "_");
  const exact = encodeURIComponent(base).replaceAll(
    /['()*]/g,
    (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `attachment; filename="${fallback}"; filename*=UTF-8''${exact}`;
}

/** Whether an `If-None-Match` header names this entity tag (RFC 9110, weak comparison). */
export function matchesEtag(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false;
  if (header.trim() === "*") return true;
  return [...header.matchAll(/(?:W\/)?("[^"]*")/g)].some(([, tag]) => tag === etag);
}
