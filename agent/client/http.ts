import {
  closeSync,
  fsyncSync,
  linkSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { type Dispatcher, request } from "undici";
import { z } from "zod";
import { ConfigError } from "../../shared/config/config.ts";
import { describeError } from "../../shared/log-line.ts";
import { makeFolder } from "../../shared/process/files.node.ts";
import { AgentToken, HostName } from "../../shared/wire/access.ts";
import { Problem } from "../../shared/wire/errors.ts";
import { protocolHeader, protocolMismatch, protocolVersion } from "../../shared/wire/leases.ts";

/** What of a refusal shows that an Airlock API sent it. */
const AnswerOfApi = Problem.pick({ title: true, status: true, detail: true, correlation_id: true });

export type Http = ReturnType<typeof createHttp>;

type Call<T> = {
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

export function createHttp({ url: apiUrl, token, dispatcher }: ApiAccess) {
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

  /**
   * Sends one request to a path under /agent/v1 and reads the whole answer.
   *
   * @throws ApiError; the signal's reason once it is aborted; the error of a body that cannot be read.
   */
  const send = <T>(call: Call<T>): Promise<T> => exchange(call, (answer) => read(answer, call));

  /**
   * Sends a GET and returns the answer before its body is read: the whole body (200) or the part
   * that `headers` ask for (206).
   *
   * @throws ApiError; the signal's reason.
   */
  const open = (
    path: string,
    headers: Record<string, string>,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<Answer> => {
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

/**
 * `unauthorized`: the token is wrong. `incompatible`: the API speaks another version of the
 * protocol. `lease_lost`: the lease is over or belongs to another agent. `rejected`: the same
 * request will always fail. `transient`: the same request may succeed later.
 */
type ApiErrorKind = "unauthorized" | "incompatible" | "lease_lost" | "rejected" | "transient";

/** The API refused a request, or could not be reached. */
export class ApiError extends Error {
  override name = "ApiError";
  readonly kind: ApiErrorKind;
  /** Milliseconds that the API asks the agent to wait. */
  readonly retryAfterMs: number;

  constructor(
    kind: ApiErrorKind,
    message: string,
    options: ErrorOptions & { retryAfterMs?: number } = {},
  ) {
    super(message, options);
    this.kind = kind;
    this.retryAfterMs = options.retryAfterMs ?? 0;
  }

  /** Whether every request will fail until an operator changes the agent or the API. */
  get endsAgent(): boolean {
    return this.kind === "unauthorized" || this.kind === "incompatible";
  }
}

/**
 * Classifies an answer other than 200. A status below 400 comes from a proxy, not from the API.
 *
 * @param isOfApi Whether the answer comes from the API itself: only the API can refuse the agent
 *   permanently.
 */
function kindOfStatus(status: number, isOfApi: boolean): ApiErrorKind {
  if (status === 401 || status === 403) return isOfApi ? "unauthorized" : "transient";
  if (status === 409) return "lease_lost";
  if (status < 400 || status === 408 || status === 429 || status >= 500) return "transient";
  return "rejected";
}

/**
 * Tells the operator what to do if the API's certificate is not trusted; undefined for any other
 * failure. Source of the codes: OpenSSL's verification errors, as Node reports them.
 */
function explainDistrust(error: unknown): string | undefined {
  for (let at = error; at instanceof Error; at = at.cause) {
    const words = wordsOf((at as NodeJS.ErrnoException).code);
    if (words !== undefined) return words;
  }
  return undefined;
}

function wordsOf(code = ""): string | undefined {
  switch (code) {
    case "ERR_TLS_CERT_ALTNAME_INVALID":
      return "its certificate is for another name: api_url must name the API as its certificate does";
    case "CERT_HAS_EXPIRED":
      return "its certificate has expired: renew it there, unless this host's clock is wrong";
    case "CERT_NOT_YET_VALID":
      return "its certificate is not valid yet: set this host's clock";
    case "DEPTH_ZERO_SELF_SIGNED_CERT":
    case "SELF_SIGNED_CERT_IN_CHAIN":
    case "UNABLE_TO_GET_ISSUER_CERT":
    case "UNABLE_TO_GET_ISSUER_CERT_LOCALLY":
    case "UNABLE_TO_VERIFY_LEAF_SIGNATURE":
    case "CERT_SIGNATURE_FAILURE":
      return "its certificate is from an authority that this host does not trust: api_ca_file must hold that authority's certificate";
    case "UND_ERR_PRX_TLS":
      return "the certificate of the proxy in HTTPS_PROXY is for another name";
    default:
      return undefined;
  }
}

/** Where an agent's token comes from. */
type TokenSource = {
  readonly current: () => string;
  /** Reads the token again after the API refused it, and returns whether it has changed. */
  readonly isReplaced: (refused: string) => boolean;
};

export function fixedToken(token: string): TokenSource {
  return { current: () => token, isReplaced: () => false };
}

/** The token that this host got by joining. `rotate` may replace it while the agent runs. */
export function joinedToken(dataDir: string, token: string): TokenSource {
  let current = token;
  return {
    current: () => current,
    isReplaced: (refused) => {
      current = readCredentials(dataDir)?.token ?? current;
      return current !== refused;
    },
  };
}

/** What a host got by joining. */
export const Credentials = z.object({ api_url: z.url(), name: HostName, token: AgentToken });
export type Credentials = z.infer<typeof Credentials>;

/** In stages `joining` and `rotating` the file holds a token that the API may not know yet. */
type Stage = "joined" | "joining" | "rotating";

export function credentialsFile(dataDir: string, stage: Stage = "joined"): string {
  return join(dataDir, stage === "joined" ? "agent.json" : `agent.json.${stage}`);
}

/**
 * Reads the credentials from `data_dir`; undefined if the host has not joined.
 *
 * @throws ConfigError if the file cannot be used, or if other users can read it.
 */
export function readCredentials(dataDir: string, stage?: Stage): Credentials | undefined {
  const file = credentialsFile(dataDir, stage);
  try {
    const text = readFileSync(file, "utf8");
    if ((statSync(file).mode & 0o077) !== 0) throw new Error("others can read it: chmod 600 it");
    return Credentials.parse(parse(text));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    const reason =
      error instanceof z.ZodError ? "not in the format that join writes" : describeError(error);
    throw new ConfigError(`cannot use ${file}, the token that this host joined with: ${reason}`, {
      cause: error,
    });
  }
}

/** Writes the file atomically, readable by its owner only, and synced to disk. */
export function writeCredentials(dataDir: string, credentials: Credentials, stage: Stage): void {
  put(dataDir, draftOf(dataDir, credentials, stage), credentialsFile(dataDir, stage));
}

/** The same, unless there is the file: processes that do this at once get what the first of them wrote. */
export function proposeCredentials(
  dataDir: string,
  credentials: Credentials,
  stage: Stage,
): Credentials {
  const draft = draftOf(dataDir, credentials, stage);
  try {
    linkSync(draft, credentialsFile(dataDir, stage));
    syncFolder(dataDir);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  } finally {
    rmSync(draft);
  }
  // Another process may have removed it just now.
  return readCredentials(dataDir, stage) ?? proposeCredentials(dataDir, credentials, stage);
}

export function removeCredentials(dataDir: string, stage: Stage): void {
  rmSync(credentialsFile(dataDir, stage), { force: true });
}

function draftOf(dataDir: string, credentials: Credentials, stage: Stage): string {
  makeFolder(dataDir);
  const draft = `${credentialsFile(dataDir, stage)}.${process.pid}`;
  rmSync(draft, { force: true });
  writeFileSync(draft, `${JSON.stringify(credentials, null, 2)}\n`, { mode: 0o600, flush: true });
  return draft;
}

/** Makes the credentials of a stage the credentials of this host. */
export function adoptCredentials(dataDir: string, stage: Stage): void {
  put(dataDir, credentialsFile(dataDir, stage), credentialsFile(dataDir));
}

function put(dataDir: string, from: string, to: string): void {
  renameSync(from, to);
  syncFolder(dataDir);
}

function syncFolder(dataDir: string): void {
  const folder = openSync(dataDir, "r");
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}
