import {
  AirlockError,
  ConnectionError,
  isPage,
  NoAnswerError,
  notAirlock,
  ProblemError,
  problemError,
} from "./errors.ts";

/** Where the service is, and how to talk to it. */
export interface ConnectOptions {
  /**
   * Address of the service, such as `http://127.0.0.1:8080`. Default: on a web page, its own origin; elsewhere the
   * environment variable AIRLOCK_URL, or else port 8080 of this machine.
   */
  url?: string | undefined;
  /** An API key; it is sent as `Authorization: Bearer`. Default, if there is no `url`: AIRLOCK_KEY. */
  key?: string | undefined;
  /** With a key that has the scope `admin`: whose records the calls are about. `*` reads those of all. */
  tenant?: string | undefined;
  /** How often a request is sent again after a temporary failure. Default 6: about 12 seconds. */
  retries?: number | undefined;
  /** How long one try may take, plus the time for which it asks the service to wait. Default 60,000; 0: no limit. */
  timeoutMs?: number | undefined;
  /** Instead of the global `fetch`. */
  fetch?: typeof fetch | undefined;
  /** Instead of `JSON.parse`, which rounds integers above 2^53 and drops the zero of 1.0. It gets the text of an answer. */
  parse?: ((text: string) => unknown) | undefined;
}

/** Options of one call. */
export interface CallOptions {
  /** Ends the call; it then rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  retries?: number | undefined;
  timeoutMs?: number | undefined;
  headers?: Record<string, string> | undefined;
}

export interface Transport {
  readonly url: string;
  readonly parse: (text: string) => unknown;
  readonly retries: number;
  readonly timeoutMs: number;
  /** Sends a request to its answer, which is there as a whole; throws an AirlockError instead of a refusal. */
  readonly send: (path: string, init?: RequestInit, options?: CallOptions) => Promise<Response>;
  /** The same, but resolves once the headers have arrived; the time-out and the retries end there. */
  readonly open: (path: string, init?: RequestInit, options?: CallOptions) => Promise<Response>;
}

const RETRIES = 6;
const TIMEOUT_MS = 60_000;

export function transport(service: ConnectOptions & { url: string }): Transport {
  const { retries: ownRetries = RETRIES, timeoutMs: ownTimeoutMs = TIMEOUT_MS } = service;
  const url = service.url.replace(/\/+$/, "");
  // Called as a method of another object, a browser's fetch throws.
  const fetchIt = service.fetch ?? ((...args: Parameters<typeof fetch>) => fetch(...args));

  async function attempt(
    path: string,
    init: RequestInit,
    options: CallOptions,
    isWhole: boolean,
  ): Promise<Response> {
    options.signal?.throwIfAborted();
    const timeoutMs = options.timeoutMs ?? ownTimeoutMs;
    const ending = new AbortController();
    const isLate = new NoAnswerError(`${url} did not answer within ${timeoutMs} ms.`);
    const timer = timeoutMs > 0 && setTimeout(() => ending.abort(isLate), timeoutMs);
    const { signal: caller } = options;
    const signal = caller ? AbortSignal.any([caller, ending.signal]) : ending.signal;
    try {
      const response = await fetchIt(url + path, { ...init, signal });
      if (response.status < 200) throw new ConnectionError(brokenHead);
      if (!response.ok && response.status !== 304) throw await problemError(response);
      return isWhole ? await readWhole(response, init.method) : response;
    } catch (error) {
      caller?.throwIfAborted();
      if (error instanceof AirlockError) throw error;
      if (ending.signal.aborted) throw isLate;
      throw new ConnectionError(`${url} could not be reached: ${reasonOf(error)}`, {
        cause: error,
      });
    } finally {
      if (timer) clearTimeout(timer);
    }
  }

  async function tried(
    path: string,
    init: RequestInit,
    options: CallOptions,
    isWhole: boolean,
  ): Promise<Response> {
    const headers = headersOf(service, init, options, path);
    const isSafe = isRepeatable(init.method, path, headers);
    const retries = options.retries ?? ownRetries;
    for (let tries = 1; ; tries++) {
      let page: Response;
      try {
        const answer = await attempt(path, { ...init, headers }, options, isWhole);
        if (!isPage(answer) || ownPages.test(path)) return answer;
        page = answer;
      } catch (error) {
        if (tries > retries || !isWorthRepeating(error, isSafe)) throw error;
        const retryAfterS = error instanceof ProblemError ? error.retryAfterS : undefined;
        await sleep(pauseMs(tries, retryAfterS), options.signal);
        continue;
      }
      await page.body?.cancel();
      throw new ConnectionError(notAirlock);
    }
  }

  return {
    url,
    parse: service.parse ?? JSON.parse,
    retries: ownRetries,
    timeoutMs: ownTimeoutMs,
    send: (path, init = {}, options = {}) => tried(path, init, options, true),
    open: (path, init = {}, options = {}) => tried(path, init, options, false),
  };
}

function headersOf(
  { key, tenant }: ConnectOptions,
  init: RequestInit,
  options: CallOptions,
  path: string,
): Headers {
  const headers = checked(init.headers);
  for (const [name, value] of checked(options.headers)) headers.set(name, value);
  if (key !== undefined) headers.set("Authorization", `Bearer ${key}`);
  if (tenant !== undefined) headers.set("X-Airlock-Tenant", tenant);
  const needsKey = takesKey.test(path) && init.method === "POST";
  if (needsKey && !headers.has("Idempotency-Key") && !hasKey(init.body)) {
    headers.set("Idempotency-Key", newKey());
  }
  return headers;
}

/** @throws AirlockError that does not show the value. */
function checked(headers: RequestInit["headers"]): Headers {
  try {
    return new Headers(headers);
  } catch (error) {
    const message = "A header of the request has a character that no header can carry.";
    throw new AirlockError(message, { cause: error });
  }
}

/** Pages of the service itself. */
const ownPages = /^\/(docs|console)\b/;
/** Requests that make jobs, files or sessions. With an idempotency key, a repeat makes no second one. */
const takesKey =
  /\/execute\/async$|^\/execute\/batch$|^\/jobs\/[^/]+\/(rerun|fork)$|^\/files\?|^\/sessions$/;
/** Requests that change nothing when they are repeated. */
const canComeTwice =
  /^(POST (.*\/cancel|\/jobs\/[^/]+\/tool-calls\/[^/]+)|DELETE \/sessions\/[^/]+)$/;

function hasKey(body: RequestInit["body"]): boolean {
  if (typeof body !== "string") return false;
  try {
    return Object.hasOwn(JSON.parse(body) as object, "idempotency_key");
  } catch {
    // The service says what is wrong with the value.
    return false;
  }
}

/** Pages that are not served over TLS have no `crypto.randomUUID`. */
function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Whether it is safe to send the request again, even if the first one arrived. */
function isRepeatable(method = "GET", path: string, headers: Headers): boolean {
  if (["GET", "HEAD", "PUT"].includes(method)) return true;
  return headers.has("Idempotency-Key") || canComeTwice.test(`${method} ${path}`);
}

function isWorthRepeating(error: unknown, isSafe: boolean): boolean {
  if (error instanceof ConnectionError) return isSafe;
  if (!(error instanceof ProblemError)) return false;
  // A proxy cannot say whether the service has the request.
  if (!error.problem) return isSafe && [429, 502, 503, 504].includes(error.status);
  if (error.code === "rate_limited") return true;
  // Other quotas are free again in hours.
  if (error.code === "quota_exceeded") return error.problem.quota === "max_queued";
  // If it names no job, nothing was stored.
  return error.code === "unavailable" && (isSafe || error.jobId === undefined);
}

/**
 * Over http://, Chromium accepts headers that were cut off: the status 201 can arrive as 2. What says how
 * the body ends is then lost, or the body ends too early, which is an error of `fetch`.
 */
const brokenHead = "The connection broke in the headers of the answer.";

async function readWhole(response: Response, method = "GET"): Promise<Response> {
  const { status, headers } = response;
  const bytes = await response.arrayBuffer();
  if (bytes.byteLength > 0) return new Response(bytes, { status, headers });
  const isWhole =
    headers.get("Content-Length") === "0" || headers.get("Transfer-Encoding") === "chunked";
  const hasNoBody = status === 204 || status === 304 || method === "HEAD";
  if (!isWhole && !hasNoBody && response.url.startsWith("http:")) {
    throw new ConnectionError(brokenHead);
  }
  return new Response(null, { status, headers });
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code } = (error.cause ?? {}) as { code?: unknown };
  if (code === "ERR_SSL_WRONG_VERSION_NUMBER") return "it does not speak TLS; try http://";
  return error.cause instanceof Error ? error.cause.message || error.message : error.message;
}

type Value = string | number | boolean | readonly string[] | undefined;

interface Question {
  method?: "POST" | "PUT" | "PATCH" | "DELETE";
  query?: Record<string, Value>;
  /** Bytes, or what becomes JSON. */
  body?: unknown;
}

/** Sends a request with JSON in both directions. */
export type Ask = <Answer>(path: string, what?: Question, options?: CallOptions) => Promise<Answer>;

export function asking({ send, parse }: Transport): Ask {
  return async <Answer>(path: string, { method, query, body }: Question = {}, options = {}) => {
    const init: RequestInit = {};
    if (method !== undefined) init.method = method;
    if (body !== undefined) {
      init.body = body instanceof Blob ? body : toJson(body);
      const type = body instanceof Blob ? body.type : "application/json";
      init.headers = { "Content-Type": type || "application/octet-stream" };
    }
    const answer = await send(path + toQuery(query), init, options);
    const text = await answer.text();
    if (answer.status === 204) return undefined as Answer;
    try {
      return (await parse(text)) as Answer;
    } catch {
      throw new ConnectionError(notAirlock);
    }
  };
}

function toQuery(query: Record<string, Value> = {}): string {
  const pairs = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [value].flat().map((one): [string, string] => [name, String(one)]),
  );
  return pairs.length === 0 ? "" : `?${new URLSearchParams(pairs).toString()}`;
}

/** @throws AirlockError for a value that `JSON.stringify` refuses or would change silently. */
function toJson(body: unknown): string {
  try {
    return JSON.stringify(body, (name, value: unknown) => {
      if (typeof value !== "number" || Number.isFinite(value)) return value;
      throw new AirlockError(`${name} is ${value}, which JSON cannot carry: send null or text.`);
    });
  } catch (error) {
    if (error instanceof AirlockError) throw error;
    throw new AirlockError(`The request cannot be sent as JSON: ${String(error)}`, {
      cause: error,
    });
  }
}

/**
 * A path of encoded parts.
 *
 * @throws AirlockError for a part such as `..`, which `fetch` would remove with the part before it.
 */
export function pathOf(...steps: string[]): string {
  const wrong = steps.find((step) => /^\.{0,2}$/.test(step));
  if (wrong !== undefined)
    throw new AirlockError(`"${wrong}" cannot be an id or a part of a name.`);
  return `/${steps.map(encodeURIComponent).join("/")}`;
}

interface Page<Item> {
  items: Item[];
  has_more: boolean;
}

/** The items of a list, page by page; `limit` is how many at most. */
export async function* pages<Item>(
  ask: Ask,
  path: string,
  { limit = Infinity, ...query }: Record<string, Value> & { limit?: number | undefined },
  idOf: (item: Item) => string | number,
  options?: CallOptions,
): AsyncGenerator<Item, void> {
  let before: string | number | undefined;
  for (let left = limit; left > 0;) {
    const page = { ...query, before, limit: Math.min(left, 1000) };
    const { items, has_more } = await ask<Page<Item>>(path, { query: page }, options);
    yield* items;
    left -= items.length;
    const last = items.at(-1);
    if (!has_more || last === undefined) return;
    before = idOf(last);
  }
}

/**
 * The lines of a body. A last line without its end is not whole, and left out.
 *
 * @param silenceMs How long nothing may come before the connection counts as broken.
 * @throws ConnectionError if the connection breaks.
 */
export async function* readLines(
  body: ReadableStream<Uint8Array>,
  silenceMs: number,
): AsyncGenerator<string, void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await readSoon(reader, silenceMs);
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      yield* lines;
    }
  } finally {
    // Also if the caller reads no further; of a broken connection nothing is left to cancel.
    await reader.cancel().catch(() => {});
  }
}

async function readSoon(reader: ReadableStreamDefaultReader<Uint8Array>, silenceMs: number) {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const silence = new Promise<never>((_, reject) => {
    const error = new NoAnswerError(`Nothing came for ${silenceMs} ms.`);
    timer = setTimeout(() => reject(error), silenceMs);
  });
  try {
    return await Promise.race([reader.read(), silence]);
  } catch (error) {
    if (error instanceof ConnectionError) throw error;
    throw new ConnectionError("The connection broke.", { cause: error });
  } finally {
    clearTimeout(timer);
  }
}

const FIRST_MS = 250;
const LONGEST_MS = 8_000;
const LONGEST_ASKED_MS = 60_000;

/**
 * How long to wait before the next try: what the service asked for, else twice as long each time.
 * Chance keeps clients that failed together from coming back together.
 *
 * @param tries How many tries have failed so far.
 */
export function pauseMs(tries: number, retryAfterS?: number, random = Math.random): number {
  if (retryAfterS !== undefined) {
    return Math.min(retryAfterS * 1000, LONGEST_ASKED_MS) + random() * FIRST_MS;
  }
  return Math.min(FIRST_MS * 2 ** (tries - 1), LONGEST_MS) * (0.5 + random() / 2);
}

/** Rejects with the signal's reason if that aborts first. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}
