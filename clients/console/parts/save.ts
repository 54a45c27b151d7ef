/** Puts bytes into the folder of downloads. A link cannot carry the key, so they are fetched first. */
export function save(blob: Blob, name: string): void {
  Object.assign(document.createElement("a"), { href: addressOf(blob), download: name }).click();
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
