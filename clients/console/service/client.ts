import { signal } from "@preact/signals";
import { type Api, bindApi } from "../../typescript/src/connect.ts";
import { ConnectionError, UnauthorizedError } from "../../typescript/src/errors.ts";
import { files as filesOf, type Files } from "../../typescript/src/files.ts";
import type { OwnKey, Scope } from "../../typescript/src/generated.ts";
import { stream } from "../../typescript/src/jobs.ts";
import { type Ask, asking, type Transport, transport } from "../../typescript/src/transport.ts";

/** Time since which the service has not answered; undefined while it answers. */
export const lostSince = signal<number | undefined>(undefined);

/** Until when the console polls less: programs with the same key need the rest of its rate limit. */
let sparingUntil = 0;
const longestSparingMs = 30_000;

/** How long to wait until the next poll, instead of the usual time. */
export const sparing = (usualMs: number): number =>
  Math.max(usualMs, Math.min(sparingUntil - Date.now(), longestSparingMs));

function learnLimit({ headers }: Response): void {
  const of = (name: string): number => Number(headers.get(`RateLimit-${name}`) ?? Number.NaN);
  const isScarce = of("Remaining") < of("Limit") / 2;
  if (isScarce) sparingUntil = Date.now() + of("Reset") * 1000;
}

/** What a person is told of a request that failed. */
export const messageOf = (error: unknown): string =>
  error instanceof ConnectionError
    ? "The service does not answer. Try again when it is back."
    : (error as Error).message;

/** A request that is not answered for this long shows that the service is stuck, such as a stopped process. */
const silentMs = 10_000;

/** What is about the service, the key or tenants, whichever tenant is chosen. */
const ofService = /^\/(keys?|tenants|audit|hosts|agents)\b/;

const pathOf = (path: RequestInfo | URL): string =>
  new URL(path instanceof Request ? path.url : path, location.origin).pathname;

async function reach(path: RequestInfo | URL, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (key.value !== "") headers.set("Authorization", `Bearer ${key.value}`);
  if (tenant.value !== "" && !ofService.test(pathOf(path))) {
    headers.set("X-Airlock-Tenant", tenant.value);
  }
  // Other requests may take their time, such as a build.
  const isRead = (init.method ?? "GET") === "GET";
  const askedAt = Date.now();
  const timer = isRead && setTimeout(() => (lostSince.value ??= askedAt), silentMs);
  try {
    const answer = await fetch(path, { ...init, headers });
    // A proxy in front of a service that is gone.
    const isOfGateway = [502, 503, 504].includes(answer.status);
    if (isOfGateway && !answer.headers.get("Content-Type")?.includes("json")) {
      throw new Error("a proxy answers in its place");
    }
    learnTime(answer);
    learnLimit(answer);
    lostSince.value = undefined;
    return answer;
  } catch (error) {
    if (!init.signal?.aborted) lostSince.value ??= Date.now();
    throw error;
  } finally {
    if (timer) clearTimeout(timer);
  }
}

/** Asks for the key where one is needed, and sends the request again. */
function keyed(send: Transport["send"]): Transport["send"] {
  return async (...request) => {
    for (;;) {
      const used = key.value;
      try {
        return await send(...request);
      } catch (error) {
        if (!(error instanceof UnauthorizedError)) throw error;
        // Another request may have got a new key meanwhile.
        if (key.value === used) await askForKey();
      }
    }
  };
}

/** Two retries take about a second: a person waits for an error no longer, and feeds ask again by themselves. */
const plain = transport({ url: location.origin, retries: 2, fetch: reach });
const way: Transport = { ...plain, send: keyed(plain.send), open: keyed(plain.open) };

/** The TypeScript client, with the key of this tab. */
export const api: Api = bindApi(way);
/** Any operation, by its path. */
export const ask: Ask = asking(way);
export const files: Files = filesOf(ask, way);
/** Any request; the body of the answer is the caller's to read. */
export const request = way.open;
export const events = stream(way);

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
function askForKey(): Promise<void> {
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

/** The key of this tab; undefined until the service has said what it may do. */
export const ownKey = signal<OwnKey | undefined>(undefined);

/** For requests that are not sent without the scope: browsers log each refusal. */
export const hasScope = (scope: Scope): boolean => ownKey.value?.scopes.includes(scope) === true;

/** For actions that are offered until it is known that the key may not do them. */
export const lacksScope = (scope: Scope): boolean => ownKey.value?.scopes.includes(scope) === false;

/** The header has whole seconds and takes a while to arrive: less than this is no difference. */
const leastMs = 5000;

let aheadMs = 0;

/** The service's time. The clock of this machine may be wrong; every time in a record is the service's. */
export const serviceNow = (): number => Date.now() + aheadMs;

/** The service's time as of the last look of any feed. Ages on the page are counted to it. */
export const clock = signal(serviceNow());

/** Takes the service's time from an answer. */
function learnTime({ headers }: Response): void {
  const ahead = Date.parse(headers.get("Date") ?? "") - Date.now();
  if (!Number.isNaN(ahead)) aheadMs = Math.abs(ahead) < leastMs ? 0 : ahead;
}
