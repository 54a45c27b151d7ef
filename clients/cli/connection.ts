import {
  chmodSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { checkKey, checkTenant, checkUrl as checkUrlItself } from "../typescript/src/connect.ts";
import type { Problem } from "../typescript/src/index.ts";
import { NoServiceError, UsageError } from "./exit.ts";
import { plain, type Terminal } from "./terminal.ts";

/** Where the service is, and the key for it. */
export interface Settings {
  url: string;
  key?: string | undefined;
  /** Whose records the command is about, if not those of the key. It is never stored. */
  tenant?: string | undefined;
}

const defaultUrl = "http://127.0.0.1:8080";

export function settingsFile(env: NodeJS.ProcessEnv): string {
  const base = env["XDG_CONFIG_HOME"] || join(homedir(), ".config");
  return join(base, "airlock", "config.json");
}

/**
 * Address and key: from the flags, else from AIRLOCK_URL and AIRLOCK_KEY, else from the file. `replaces`: the
 * file is about to be written anew, so it may be broken.
 */
export function readSettings(
  flags: Partial<Settings>,
  env: NodeJS.ProcessEnv,
  replaces = false,
): Settings {
  const file = settingsFile(env);
  const given = { url: flags.url ?? (env["AIRLOCK_URL"] || undefined), key: givenKey(flags, env) };
  // A file that cannot be used is an error only for commands that need it.
  const isWhole = given.url !== undefined && given.key !== undefined;
  const stored = isWhole ? {} : readStored(file, replaces);
  const url = checkUrl(given.url ?? stored.url ?? defaultUrl);
  // A stored key is for the stored address: another service must not get it.
  const key = given.key ?? (stored.url && sameOrigin(url, stored.url) ? stored.key : undefined);
  const { tenant } = flags;
  refusing(() => {
    checkKey(key);
    checkTenant(tenant);
  });
  return { url, key, tenant };
}

/** The key for this command, if it is not a stored one. */
export function givenKey({ key }: Partial<Settings>, env: NodeJS.ProcessEnv): string | undefined {
  return key ?? (env["AIRLOCK_KEY"] || undefined);
}

/** Stores address and key for later commands, readable by this user only. */
export function writeSettings(settings: Settings, env: NodeJS.ProcessEnv): string {
  const file = settingsFile(env);
  makeFolder(dirname(file), 0o700);
  const temporary = `${file}.${process.pid}`;
  try {
    writeFileSync(temporary, `${JSON.stringify(settings, null, 2)}\n`, { mode: 0o600 });
    chmodSync(temporary, 0o600);
    renameSync(temporary, file);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw new UsageError(`${file} cannot be written: ${(error as Error).message}`);
  }
  return file;
}

function readStored(file: string, replaces: boolean): Partial<Settings> {
  try {
    return asStored(JSON.parse(readFileSync(file, "utf8")));
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (replaces || code === "ENOENT" || code === "ENOTDIR") return {};
    throw new UsageError(
      `${file} cannot be used: ${message}\nRemove it, or run airlock login again.`,
    );
  }
}

function asStored(value: unknown): Partial<Settings> {
  const { url, key } = (value ?? {}) as Record<string, unknown>;
  if (typeof url === "string" && (key === undefined || typeof key === "string")) {
    checkKey(key);
    return { url: checkUrlItself(url), key };
  }
  throw new Error('it must have the form {"url": "http://host:port", "key": "…"}');
}

export function checkUrl(text: string): string {
  return refusing(() => checkUrlItself(text));
}

function refusing<T>(check: () => T): T {
  try {
    return check();
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

function sameOrigin(a: string, b: string): boolean {
  return URL.parse(a)?.origin === URL.parse(b)?.origin;
}

/** Tries before a service has answered: about 3 s, enough for a restart. */
const refusedTries = 5;
/** After this time without an answer, the command says that it waits. */
const silentMs = 5000;
/** Requests that may take long: those that wait for an event, and uploads, which show their progress. */
const mayTakeLong = /[?&]wait=|\/build\b|\/execute$|\/files\?/;

/**
 * The global `fetch`. Says once why the command waits. Gives up early if no service has answered before: then the
 * address is wrong, or nothing listens there.
 */
export function patientFetch(url: string, terminal: Terminal): typeof fetch {
  const way = sayProxy(url, process.env);
  let [isSaid, hasAnswered, failures] = [false, false, 0];
  const say = (text: string): void => {
    if (!isSaid) terminal.note(text, "dim");
    isSaid = true;
  };
  return async (input, init) => {
    const silence = setTimeout(() => {
      say(`${url} has not answered for ${silentMs / 1000} s; still waiting …`);
    }, silentMs);
    if (mayTakeLong.test(input as string)) clearTimeout(silence);
    try {
      const answer = await fetch(input, init);
      hasAnswered = true;
      const reason = isSoonBetter.has(answer.status) ? await describe(url, answer) : undefined;
      if (reason !== undefined) say(`${reason}; trying again …`);
      return answer;
    } catch (error) {
      if (init?.signal?.aborted === true) throw error;
      failures++;
      const { reason, isFinal, isRefused } = explain(error);
      if (!hasAnswered && (isFinal || (isRefused && failures >= refusedTries))) {
        throw new NoServiceError(`${url} could not be reached${way}: ${reason}`, { cause: error });
      }
      say(`${url} does not answer${way} (${reason}); trying again …`);
      throw error;
    } finally {
      clearTimeout(silence);
    }
  };
}

/** Statuses after which the client repeats a request, when the service asks for it. */
const isSoonBetter = new Set([429, 502, 503, 504]);

/** Why a request is repeated. Of the quotas, only that of waiting jobs is free again soon. */
async function describe(url: string, answer: Response): Promise<string | undefined> {
  const problem: unknown = await answer
    .clone()
    .json()
    .catch(() => undefined);
  const { quota, detail = `HTTP ${answer.status}` } = (problem ?? {}) as Partial<Problem>;
  if (quota !== undefined && quota !== "max_queued") return undefined;
  return `${url} cannot serve this now (${plain(detail)})`;
}

/** Errors that another try does not mend. "bad port": browsers, and so `fetch`, connect to no such port. */
const final = /^(ENOTFOUND|ERR_(SSL|TLS)_\w+|\w*CERT\w*|UNABLE_TO_\w+|bad port)$/;
const untrusted = /CERT|UNABLE_TO_/;

function explain(error: unknown): { reason: string; isFinal: boolean; isRefused: boolean } {
  const cause: unknown = error instanceof Error ? (error.cause ?? error) : error;
  const { message, code = message } = cause as NodeJS.ErrnoException;
  const trust = untrusted.test(code) ? "; NODE_EXTRA_CA_CERTS=ca.pem adds an authority" : "";
  return {
    reason: reasons[code] ?? (message || code) + trust,
    isFinal: final.test(code),
    isRefused: code === "ECONNREFUSED",
  };
}

const reasons: Readonly<Record<string, string>> = {
  ECONNREFUSED: "nothing listens there",
  ENOTFOUND: "there is no host of that name",
  ERR_SSL_WRONG_VERSION_NUMBER: "it does not speak TLS; try http://",
};

type Environment = Readonly<Record<string, string | undefined>>;

/** A proxy could not reach what runs on this machine. */
const local = "localhost,127.0.0.1,::1,[::1]";

/** Has `fetch` use the proxies of the environment. Node before 24.14 does so only with NODE_USE_ENV_PROXY=1. */
export function useProxies(env: Environment): void {
  const [http, https] = ["http_proxy", "https_proxy"].map((name) => readProxy(env, name));
  if (!http && !https) return;
  setProxies()?.({
    http_proxy: http?.href,
    https_proxy: https?.href,
    no_proxy: exceptions(env).join(),
  });
}

/** What a message says about the proxy on the way to an address. */
function sayProxy(url: string, env: Environment): string {
  const proxy = proxyOf(url, env);
  if (proxy === undefined) return "";
  if (setProxies() || env["NODE_USE_ENV_PROXY"] === "1") return ` through the proxy ${proxy}`;
  return ` without the proxy ${proxy}: Node ${process.version} needs NODE_USE_ENV_PROXY=1 to use one`;
}

function setProxies(): ((env: Environment) => void) | undefined {
  const http: object = process.getBuiltinModule("node:http");
  return (http as { setGlobalProxyFromEnv?: (env: Environment) => void }).setGlobalProxyFromEnv;
}

/** The proxy for an address, without the password that the proxy's address may have. */
export function proxyOf(url: string, env: Environment): string | undefined {
  const { protocol, hostname } = new URL(url);
  const isDirect = exceptions(env).some(
    (one) => one === "*" || `.${hostname}`.endsWith(`.${one.replace(/^\*?\./, "")}`),
  );
  return isDirect ? undefined : readProxy(env, `${protocol.slice(0, -1)}_proxy`)?.host;
}

function exceptions(env: Environment): string[] {
  return `${read(env, "no_proxy")},${local}`.split(/[,\s]+/).filter((one) => one !== "");
}

/** Takes `proxy:3128` for http, as curl does. */
function readProxy(env: Environment, name: string): URL | undefined {
  const given = read(env, name);
  if (given === "") return undefined;
  const proxy = URL.parse(/^[a-z0-9]+:\/\//i.test(given) ? given : `http://${given}`);
  if (proxy && /^https?:$/.test(proxy.protocol)) return proxy;
  throw new UsageError(`${name} must be an address such as http://proxy.example:3128`);
}

function read(env: Environment, name: string): string {
  return env[name] || env[name.toUpperCase()] || "";
}

/**
 * Makes a folder and those above it. Node's `recursive` would never return where the system answers ENOENT for a
 * folder whose parent exists, as in /proc.
 */
export function makeFolder(path: string, mode = 0o777): void {
  try {
    if (statSync(path, { throwIfNoEntry: false })) return;
    makeFolder(dirname(path), mode);
    mkdirSync(path, { mode });
  } catch (error) {
    if (error instanceof UsageError) throw error;
    const { code, message } = error as NodeJS.ErrnoException;
    // Another command may have made it meanwhile.
    if (code !== "EEXIST") throw new UsageError(`the folder ${path} cannot be made: ${message}`);
  }
}
