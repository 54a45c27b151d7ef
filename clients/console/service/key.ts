import { signal } from "@preact/signals";

const place = "airlock-key";
/** Long enough for another tab to answer, and too short for a person to notice. */
const othersMs = 150;

/** The API key, for as long as the tab is open. */
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

/** Only pages of the same origin receive it, and nothing is stored. */
const tabs = new BroadcastChannel(place);
type Message =
  | { wants: "another"; than: string }
  | { gives: string; tenant: string }
  | { forgets: true };
// oxlint-disable-next-line unicorn/require-post-message-target-origin -- a channel has no target: it is its origin's
const tell = (message: Message): void => tabs.postMessage(message);

tabs.addEventListener("message", ({ data }: MessageEvent<Message>) => {
  // A tab that asks for a key has none that works.
  if ("wants" in data && !asked && key.value !== "" && key.value !== data.than)
    tell({ gives: key.value, tenant: tenant.value });
  if ("gives" in data && asked && key.value !== data.gives) take(data.gives, data.tenant);
  if ("forgets" in data && key.value !== "") drop();
});

/** Resolves when there is another key, from an open tab of the console or from the person. */
export function askForKey(): Promise<void> {
  if (!asked) {
    asked = Promise.withResolvers();
    const reason = key.value === "" ? "missing" : "wrong";
    tell({ wants: "another", than: key.value });
    setTimeout(() => {
      if (asked) keyWanted.value = reason;
    }, othersMs);
  }
  return asked.promise;
}

/** Another key may not choose a tenant: then nothing could be shown. */
function take(given: string, itsTenant: string): void {
  key.value = given;
  tenant.value = itsTenant;
  sessionStorage.setItem(place, given);
  sessionStorage.setItem(tenantPlace, itsTenant);
  keyWanted.value = undefined;
  asked?.resolve();
  asked = undefined;
}

export function giveKey(given: string): void {
  take(given.trim(), "");
  tell({ gives: key.value, tenant: "" });
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

/** Forgets the key in every tab: otherwise each would give it back to the others. */
export function forgetKey(): void {
  tell({ forgets: true });
  drop();
}
