import { announce } from "./announce.ts";

/** Puts a text on the clipboard. Browsers refuse that on plain http, other than on this machine. */
export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    if (!copySelected(text)) {
      announce("The browser does not allow copying: select the text and copy it.");
      return;
    }
  }
  announce("Copied");
}

/** For browsers without the clipboard API. The text area is in the open dialog: outside it, nothing can be selected. */
function copySelected(text: string): boolean {
  const focused = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (focused instanceof HTMLElement) focused.focus();
  return isCopied;
}
