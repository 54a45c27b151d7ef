import { signal } from "@preact/signals";
import { messageOf } from "../service/client.ts";

/** What just happened, shown for a moment at the foot of the page and read out. */
export const announcement = signal("");

/** While a dialog is open, it shows the note itself: the page behind it is dimmed, and is not read out. */
export const openDialogs = signal(0);

let timer: ReturnType<typeof setTimeout> | undefined;

export function announce(text: string): void {
  announcement.value = text;
  clearTimeout(timer);
  timer = setTimeout(() => (announcement.value = ""), 6000);
}

/** Does something that the person asked for, and says so if it cannot be done. */
export async function attempt<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    announce(messageOf(error));
    return undefined;
  }
}
