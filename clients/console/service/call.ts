import { signal } from "@preact/signals";
import type { Problem } from "../../../shared/wire/errors.ts";
import { askForKey, key } from "./key.ts";

/** Time since which the service has not answered; undefined while it answers. */
export const lostSince = signal<number | undefined>(undefined);

/** A refused request. */
export class Refused extends Error {
  override name = "Refused";
  readonly problem: Problem;
  readonly retryAfterS: number | undefined;
  constructor(problem: Problem, retryAfterS?: number) {
    const fields = (problem.errors ?? []).map(({ path, message }) => `${path}: ${message}`);
    super([problem.detail, ...fields].join("\n"));
    this.problem = problem;
    this.retryAfterS = retryAfterS;
  }
}

/** The service cannot be reached. */
export class Gone extends Error {
  override name = "Gone";
}

export interface Call {
  method?: string;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** Sends a request; asks for the key where one is needed, and sends it again. */
export async function send(
  path: string,
  { method = "GET", body, headers, signal }: Call = {},
): Promise<Response> {
  for (;;) {
    const used = key.value;
    const answer = await reach(path, {
      method,
      headers: {
        ...(used !== "" && { Authorization: `Bearer ${used}` }),
        ...(body !== undefined && { "Content-Type": "application/json" }),
        ...headers,
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      ...(signal && { signal }),
    });
    if (answer.status === 401) {
      // Another request may have got a new key meanwhile.
      if (key.value === used) await askForKey();
      continue;
    }
    if (!answer.ok) throw await refusal(answer);
    return answer;
  }
}

async function reach(path: string, init: RequestInit): Promise<Response> {
  try {
    const answer = await fetch(path, init);
    // A proxy in front of a service that is gone.
    if (answer.status === 502 && !isJson(answer)) throw new Gone("The service does not answer.");
    lostSince.value = undefined;
    return answer;
  } catch (error) {
    if (init.signal?.aborted) throw error;
    lostSince.value ??= Date.now();
    throw new Gone("The service does not answer.", { cause: error });
  }
}

const isJson = (answer: Response): boolean =>
  answer.headers.get("Content-Type")?.includes("json") ?? false;

async function refusal(answer: Response): Promise<Refused> {
  const retryAfter = Number(answer.headers.get("Retry-After") ?? NaN);
  const problem = isJson(answer)
    ? ((await answer.json()) as Problem)
    : ({
        status: answer.status,
        title: answer.statusText,
        detail: `HTTP ${answer.status}`,
      } as Problem);
  return new Refused(problem, Number.isNaN(retryAfter) ? undefined : retryAfter);
}

export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await send(path, signal ? { signal } : {})).json()) as T;
}

export async function getText(path: string, signal?: AbortSignal): Promise<string> {
  return (await send(path, signal ? { signal } : {})).text();
}

export async function post<T>(path: string, body?: unknown): Promise<T> {
  const call = body === undefined ? {} : { body };
  return (await (await send(path, { method: "POST", ...call })).json()) as T;
}
