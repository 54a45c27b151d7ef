import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { getCACertificates } from "node:tls";
import { Agent, type Dispatcher, EnvHttpProxyAgent, Pool } from "undici";
import { type Config, ConfigError } from "../../shared/config/config.ts";
import { describeError } from "../../shared/log-line.ts";

/**
 * The API's address, and the certificates (PEM) that verify it; undefined means the system's
 * certificates.
 */
export type ApiAddress = { readonly url: string; readonly ca: string | undefined };

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
