import { UsageError } from "./exit.ts";

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
export function sayProxy(url: string, env: Environment): string {
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
