import { AirlockError, ConnectionError, notAirlock } from "./errors.ts";
import type { CallOptions, Transport } from "./transport.ts";

type Value = string | number | boolean | readonly string[] | undefined;

export interface Question {
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
