import { signal } from "@preact/signals";
import { type Api, bindApi } from "../../typescript/src/api.ts";
import { asking } from "../../typescript/src/transport/ask.ts";
import { ConnectionError, UnauthorizedError } from "../../typescript/src/transport/errors.ts";
import { files as filesOf, type Files } from "../../typescript/src/jobs/files.ts";
import { stream } from "../../typescript/src/jobs/stream.ts";
import { type Transport, transport } from "../../typescript/src/transport/transport.ts";
import { learnTime } from "./clock.ts";
import { askForKey, key, tenant } from "./key.ts";

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
export const files: Files = filesOf(asking(way), way);
/** Any request; the body of the answer is the caller's to read. */
export const request = way.open;
export const events = stream(way);
