import { type Dispatcher, request } from "undici";
import { z } from "zod";
import { Problem } from "../../shared/wire/errors.ts";
import {
  protocolHeader,
  protocolMismatch,
  protocolVersion,
} from "../../shared/wire/agent/protocol.ts";
import { ApiError, kindOfStatus } from "./errors.ts";
import { explainDistrust } from "./distrust.ts";
import type { TokenSource } from "./token-source.ts";

/** What of a refusal shows that an Airlock API sent it. */
const AnswerOfApi = Problem.pick({ title: true, status: true, detail: true, correlation_id: true });

export type Http = {
  /**
   * Sends one request to a path under /agent/v1 and reads the whole answer.
   *
   * @throws ApiError; the signal's reason once it is aborted; the error of a body that cannot be read.
   */
  readonly send: <T>(call: Call<T>) => Promise<T>;
  /**
   * Sends a GET and returns the answer before its body is read: the whole body (200) or the part
   * that `headers` ask for (206).
   *
   * @throws ApiError; the signal's reason.
   */
  readonly open: (
    path: string,
    headers: Record<string, string>,
    timeoutMs: number,
    signal: AbortSignal,
  ) => Promise<Answer>;
  readonly close: () => Promise<void>;
};

export type Call<T> = {
  readonly method: "GET" | "POST" | "PUT";
  readonly path: string;
  readonly headers: Record<string, string>;
  readonly body: string | NodeJS.ReadableStream;
  readonly reply: z.ZodType<T>;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
};

type Request = Omit<Call<unknown>, "reply">;

const MAX_RETRY_AFTER_MS = 30_000;

const ownVersion = { [protocolHeader]: protocolVersion };

type Answer = Awaited<ReturnType<typeof request>>;

export type ApiAccess = {
  readonly url: string;
  /** Undefined for a host that has no token yet. */
  readonly token: TokenSource | undefined;
  readonly dispatcher: Dispatcher;
};

export function createHttp({ url: apiUrl, token, dispatcher }: ApiAccess): Http {
  const base = `${apiUrl.replace(/\/+$/, "")}/agent/v1`;
  const authorization = (): Record<string, string> =>
    token === undefined ? {} : { authorization: `Bearer ${token.current()}` };

  /** Sends a request and reads its answer; a failure of either gets its kind here. */
  async function exchange<T>(call: Request, use: (answer: Answer) => Promise<T>): Promise<T> {
    const presented = token?.current() ?? "";
    let ownFailure: Error | undefined;
    const noteOwn = (error: Error): void => void (ownFailure = error);
    if (typeof call.body !== "string") call.body.once("error", noteOwn);
    try {
      return await use(await ask(call));
    } catch (error) {
      call.signal.throwIfAborted();
      if (isRefused(error) && token?.isReplaced(presented)) {
        throw new ApiError("transient", "the token was rotated; the agent now uses the new one");
      }
      if (error instanceof ApiError) throw error;
      // What the agent sends cannot be read from its own disk.
      if (ownFailure !== undefined) throw ownFailure;
      const distrust = explainDistrust(error);
      const what = distrust ? `${apiUrl} is not trusted: ${distrust}` : `no answer from ${apiUrl}`;
      throw new ApiError("transient", what, { cause: error });
    }
  }

  function ask(call: Request): Promise<Answer> {
    return request(base + call.path, {
      dispatcher,
      method: call.method,
      headers: { ...call.headers, ...authorization(), ...ownVersion },
      body: call.method === "GET" ? null : (call.body as string),
      signal: call.signal,
      headersTimeout: call.timeoutMs,
      bodyTimeout: call.timeoutMs,
    });
  }

  const send: Http["send"] = (call) => exchange(call, (answer) => read(answer, call));

  const open: Http["open"] = (path, headers, timeoutMs, signal) => {
    const call = { method: "GET", path, headers, body: "", timeoutMs, signal } as const;
    return exchange(call, async (answer) => {
      if (answer.statusCode !== 200 && answer.statusCode !== 206) {
        await read(answer, { ...call, reply: z.never() });
      }
      return answer;
    });
  };

  return { send, open, close: () => dispatcher.destroy() };
}

function isRefused(error: unknown): boolean {
  return error instanceof ApiError && error.kind === "unauthorized";
}

async function read<T>(answer: Answer, call: Call<T>): Promise<T> {
  const body = parse(await answer.body.text());
  refuseOtherProtocol(answer);
  const what = `${call.method} ${call.path}`;
  if (answer.statusCode !== 200) {
    const problem = AnswerOfApi.safeParse(body);
    const isOfApi = problem.success && answer.headers[protocolHeader] !== undefined;
    const reason = isOfApi
      ? `: ${problem.data.detail}`
      : ", but not by an Airlock API: look for a proxy or a firewall in between";
    throw new ApiError(
      kindOfStatus(answer.statusCode, isOfApi),
      `${what} answered ${answer.statusCode}${reason}`,
      { retryAfterMs: retryAfterMs(answer.headers["retry-after"]) },
    );
  }
  const reply = call.reply.safeParse(body);
  if (reply.success) return reply.data;
  // Transient, because an unknown shape comes from something other than an Airlock API, such as a
  // proxy.
  throw new ApiError("transient", `${what} answered with an unknown shape`, { cause: reply.error });
}

function refuseOtherProtocol({ headers }: Answer): void {
  const mismatch = protocolMismatch(headers[protocolHeader]?.toString(), "API");
  if (mismatch !== undefined) throw new ApiError("incompatible", mismatch);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Reads Retry-After in seconds, the form that the API sends. Bounded, because a proxy may send any
 * value.
 */
function retryAfterMs(header: string | string[] | undefined): number {
  const seconds = Number(header);
  return seconds > 0 ? Math.min(seconds * 1000, MAX_RETRY_AFTER_MS) : 0;
}
