import { signal } from "@preact/signals";

const place = "airlock-key";

/**
 * The API key, for as long as the tab is open. No tab gives the key to another tab on request, because a page that code
 * wrote may have the same origin. Tabs that the console opens begin with a copy (`followLinks`).
 */
export const key = signal(sessionStorage.getItem(place) ?? "");

const tenantPlace = "airlock-tenant";
/** Whose records this tab shows: "" for those of the key's own tenant, * for all. Only a key with the scope admin may choose. */
export const tenant = signal(sessionStorage.getItem(tenantPlace) ?? "");

/** Shows the records of a tenant, and nothing of what was shown before. */
export function chooseTenant(name: string): void {
  sessionStorage.setItem(tenantPlace, name);
  location.reload();
}

/** Why a key is asked for; undefined while none is. */
export const keyWanted = signal<"missing" | "wrong" | undefined>(undefined);

let asked: PromiseWithResolvers<void> | undefined;

/** Tells the other tabs to forget the key. */
const tabs = new BroadcastChannel("airlock-forget");
tabs.addEventListener("message", () => {
  if (key.value !== "") drop();
});

/** Resolves when the person has given another key. */
export function askForKey(): Promise<void> {
  asked ??= Promise.withResolvers();
  keyWanted.value ??= key.value === "" ? "missing" : "wrong";
  return asked.promise;
}

export function giveKey(given: string): void {
  key.value = given.trim();
  // Another key may not choose a tenant: then nothing could be shown.
  tenant.value = "";
  sessionStorage.setItem(place, key.value);
  sessionStorage.setItem(tenantPlace, "");
  keyWanted.value = undefined;
  asked?.resolve();
  asked = undefined;
}

/** The next person at this browser, in this tab too, does not get what was written with the key. */
function clear(): void {
  sessionStorage.clear();
  localStorage.clear();
}

function drop(): void {
  clear();
  // A draft that has just been changed is saved when the page is left.
  addEventListener("pagehide", clear);
  location.reload();
}

/** Forgets the key in every tab. */
export function forgetKey(): void {
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a channel has no target: it is its origin's
  tabs.postMessage(true);
  drop();
}
