import { signal } from "@preact/signals";

const place = "airlock-key";

/** The API key, for as long as the tab is open. */
export const key = signal(sessionStorage.getItem(place) ?? "");

/** Why a key is asked for; undefined while none is. */
export const keyWanted = signal<"missing" | "wrong" | undefined>(undefined);

let asked: PromiseWithResolvers<void> | undefined;

/** Resolves when the person has given a key. */
export function askForKey(): Promise<void> {
  keyWanted.value = key.value === "" ? "missing" : "wrong";
  asked ??= Promise.withResolvers();
  return asked.promise;
}

export function giveKey(given: string): void {
  key.value = given.trim();
  sessionStorage.setItem(place, key.value);
  keyWanted.value = undefined;
  asked?.resolve();
  asked = undefined;
}

export function forgetKey(): void {
  key.value = "";
  sessionStorage.removeItem(place);
  // The next person at this browser does not get what was written with it.
  localStorage.clear();
  location.reload();
}
