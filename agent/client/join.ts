import { createHash, randomBytes, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import { text } from "node:stream/consumers";
import { getCACertificates } from "node:tls";
import { parseArgs } from "node:util";
import type { Logger } from "@logtape/logtape";
import { Agent, type Dispatcher, EnvHttpProxyAgent, Pool } from "undici";
import { z } from "zod";
import { type Config, ConfigError } from "../../shared/config/config.ts";
import { describeError } from "../../shared/log-line.ts";
import { readConfig } from "../../shared/process/files.node.ts";
import {
  JoinCode,
  JoinReply,
  type JoinRequest,
  type RotateRequest,
} from "../../shared/wire/access.ts";
import type { Clock } from "../waiting.ts";
import {
  adoptCredentials,
  createHttp,
  type Credentials,
  credentialsFile,
  fixedToken,
  type Http,
  proposeCredentials,
  readCredentials,
  removeCredentials,
  writeCredentials,
} from "./http.ts";

const TIMEOUT_MS = 30_000;

/**
 * `join --url <address> --code <code>`: exchanges a one-time code for this host's own token. The
 * token is made and stored here before it is sent, so the command can be repeated if the API's
 * answer was lost. Returns a message for the operator.
 */
export async function joinApi(args: string[], env: NodeJS.ProcessEnv): Promise<string> {
  const options = joinOptions(args);
  const config = readConfig(env);
  const { data_dir: dataDir } = config;
  const url = options.url ?? config.api_url;
  if (url === undefined) throw new ConfigError("join needs --url, the API's address");
  const address = apiAddress(url, config);
  const known = readCredentials(dataDir);
  if (known) {
    throw new ConfigError(
      `this host has joined ${known.api_url} as ${known.name}; to join again, remove ${credentialsFile(dataDir)}`,
    );
  }
  const code = await readCode(options.code);
  const earlier = readCredentials(dataDir, "joining");
  const name = options.name ?? config.agent_name ?? hostname();
  const token = earlier?.token ?? newToken();
  writeCredentials(dataDir, { api_url: url, name, token }, "joining");

  const http = createHttp({ url, token: undefined, dispatcher: connectApi(address, env) });
  const request: JoinRequest = { code, token_sha256: hashOf(token), name };
  const { agent } = await post(http, "/join", request, JoinReply);
  writeCredentials(dataDir, { api_url: url, name: agent.name, token }, "joining");
  adoptCredentials(dataDir, "joining");
  return `joined ${url} as ${agent.name}; its token is in ${credentialsFile(dataDir)}, and npm run agent uses it`;
}

/**
 * `rotate`: gives a joined host a new token. The old token is valid until the new one is first
 * used, which is the last step here. A running agent switches to the new token by itself. Agents of
 * one host that do this at the same time give it the same one.
 */
export async function rotateToken(env: NodeJS.ProcessEnv): Promise<string> {
  const config = readConfig(env);
  const { data_dir: dataDir } = config;
  const known = readCredentials(dataDir);
  if (config.agent_token !== undefined || !known) {
    throw new ConfigError(
      "only a token that this host got by joining can be rotated; change a configured agent_token in the configuration",
    );
  }
  const url = config.api_url ?? known.api_url;
  const address = apiAddress(url, config);
  const { token } = proposeCredentials(dataDir, { ...known, token: newToken() }, "rotating");
  // Another process may have ended a rotation before.
  const old = readCredentials(dataDir) ?? known;

  const order: RotateRequest = { token_sha256: hashOf(token) };
  const present = async ({ token: presented }: Pick<Credentials, "token">): Promise<void> => {
    const dispatcher = connectApi(address, env);
    const http = createHttp({ url, token: fixedToken(presented), dispatcher });
    await post(http, "/rotate", order, z.object({}));
  };
  await present(old).catch((error: unknown) => {
    // Another process was faster, and the old token is void.
    if (readCredentials(dataDir)?.token !== token) throw error;
  });
  writeCredentials(dataDir, { ...old, token }, "joined");
  removeCredentials(dataDir, "rotating");
  await present({ token });
  return `${old.name} has a new token; the old one is void`;
}

async function post<T>(http: Http, path: string, body: object, reply: z.ZodType<T>): Promise<T> {
  try {
    return await http.send({
      method: "POST",
      path,
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      reply,
      timeoutMs: TIMEOUT_MS,
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
  } finally {
    await http.close();
  }
}

function joinOptions(args: string[]) {
  try {
    const type = "string";
    return parseArgs({ args, options: { url: { type }, code: { type }, name: { type } } }).values;
  } catch (error) {
    throw new ConfigError(`${describeError(error)}; npm run agent -- --help shows how`);
  }
}

async function readCode(given: string | undefined): Promise<string> {
  if (given === undefined) throw new ConfigError("join needs --code, or --code - to read it");
  const code = JoinCode.safeParse((given === "-" ? await text(process.stdin) : given).trim());
  if (code.success) return code.data;
  throw new ConfigError(`--code: ${code.error.issues[0]?.message}`);
}

const newToken = (): string => `ala_${randomBytes(32).toString("hex")}`;

const hashOf = (token: string): string => createHash("sha256").update(token).digest("hex");

/** Until the token is replaced, every answer to a poll asks for it. */
const pauseMs = 60_000;

/** Replaces the host's token when the API asks for it, at most once a minute. */
export function createRotation(
  { log, clock }: { log: Logger; clock: Pick<Clock, "nowMs"> },
  rotate: () => Promise<string>,
): () => void {
  let triedMs = -Infinity;
  return () => {
    if (clock.nowMs() < triedMs + pauseMs) return;
    triedMs = clock.nowMs();
    rotate().then(
      (done) => log.info("{done}", { done }),
      (error: unknown) =>
        log.warn("the API asks for a new token, but the agent cannot make one: {reason}", {
          reason: describeError(error),
        }),
    );
  };
}

/**
 * The API's address, and the certificates (PEM) that verify it; undefined means the system's
 * certificates.
 */
type ApiAddress = { readonly url: string; readonly ca: string | undefined };

const CONNECT_TIMEOUT_MS = 5000;
/** How long a proxy may take to connect to the API. */
const TUNNEL_TIMEOUT_MS = 10_000;

/** @throws ConfigError if the address or the certificates cannot be used. */
export function apiAddress(
  url: string,
  { allow_plain_http, api_ca_file }: Pick<Config, "allow_plain_http" | "api_ca_file">,
): ApiAddress {
  const { protocol, hostname, origin } = new URL(url);
  if (protocol === "http:" && !isLoopback(hostname) && !allow_plain_http) {
    throw new ConfigError(
      `api_url = "${origin}": the agent's token would cross the network in clear; use https://, or set allow_plain_http where the network between is trusted`,
    );
  }
  return { url, ca: api_ca_file === undefined ? undefined : readCertificates(api_ca_file) };
}

/**
 * Connections to the API. The API's certificate must match the name in the address;
 * NODE_TLS_REJECT_UNAUTHORIZED cannot switch this off. TLS connections go through the proxy in
 * HTTPS_PROXY, unless NO_PROXY lists the host. The proxy only tunnels (CONNECT) and sees no
 * request.
 *
 * @throws ConfigError if HTTPS_PROXY is not an address.
 */
export function connectApi({ url, ca }: ApiAddress, env: NodeJS.ProcessEnv): Dispatcher {
  // No HTTP/2: all requests would share one connection, and a renewal would wait for an upload.
  const tls = { rejectUnauthorized: true, allowH2: false, ...(ca !== undefined && { ca }) };
  const direct = { allowH2: false, connect: { ...tls, timeout: CONNECT_TIMEOUT_MS } };
  const proxy = env["https_proxy"] || env["HTTPS_PROXY"];
  if (!proxy || !url.startsWith("https:")) return new Agent(direct);
  checkProxy(proxy);
  const theirs = ca === undefined ? {} : { ca: [...getCACertificates("default"), ca] };
  return new EnvHttpProxyAgent({
    ...direct,
    httpsProxy: proxy,
    httpProxy: proxy,
    noProxy: env["no_proxy"] || env["NO_PROXY"] || "",
    connectTimeout: CONNECT_TIMEOUT_MS,
    requestTls: tls,
    proxyTls: { rejectUnauthorized: true, ...theirs },
    clientFactory: (origin, options) =>
      new Pool(origin, { ...options, headersTimeout: TUNNEL_TIMEOUT_MS }),
  });
}

/** The message does not show the address: it may contain a password. */
function checkProxy(proxy: string): void {
  const protocol = URL.canParse(proxy) ? new URL(proxy).protocol : "";
  if (protocol !== "http:" && protocol !== "https:") {
    throw new ConfigError("HTTPS_PROXY must be an address such as http://proxy.example:3128");
  }
}

/** Throws if the PEM text does not begin with a valid certificate. */
const checkCertificate = (pem: string): X509Certificate => new X509Certificate(pem);

function readCertificates(file: string): string {
  try {
    const text = readFileSync(file, "utf8");
    checkCertificate(text);
    return text;
  } catch (cause) {
    const reason = describeError(cause);
    throw new ConfigError(`api_ca_file = "${file}": cannot read a certificate (PEM): ${reason}`, {
      cause,
    });
  }
}

function isLoopback(hostname: string): boolean {
  return /^(localhost|.+\.localhost|127(\.\d+){3}|\[::1\])$/.test(hostname);
}
