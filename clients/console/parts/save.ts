/**
 * Puts bytes into the folder of downloads. A link cannot carry the key, so the bytes are fetched first. Their address has
 * the origin of the console: if they kept their content type, they would run there as a page when a person opens it.
 */
export function save(blob: Blob, name: string): void {
  const bytes = new Blob([blob], { type: "application/octet-stream" });
  Object.assign(document.createElement("a"), { href: addressOf(bytes), download: name }).click();
}

/** Shows a text as it is, in a tab of its own. */
export function openRaw(text: string): void {
  open(addressOf(new Blob([text], { type: "text/plain;charset=utf-8" })), "_blank");
}

function addressOf(blob: Blob): string {
  const url = URL.createObjectURL(blob);
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
  return url;
}
