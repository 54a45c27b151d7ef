import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { linkSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { hostname } from "node:os";
import { join } from "node:path";
import { makeFolder } from "../../shared/process/files.node.ts";
import { describeKeys, OperatorError, parseCommandLine } from "../operate/command.ts";

const OPTIONS = {
  help: { type: "boolean", short: "h" },
  host: { type: "string" },
  port: { type: "string" },
  "data-dir": { type: "string" },
  "docker-host": { type: "string" },
  "max-workers": { type: "string" },
  "in-container": { type: "boolean" },
  verbose: { type: "boolean", short: "v" },
} as const;

/** What `--in-container` sets, where the environment sets nothing else. */
const IN_CONTAINER = {
  AIRLOCK_HOST: "0.0.0.0",
  AIRLOCK_ALLOW_UNAUTHENTICATED_NETWORK_ACCESS: "true",
  // Else a web page whose name leads to this machine could use the service.
  AIRLOCK_ALLOWED_HOSTS: "localhost",
};

type StartOptions = {
  help: boolean;
  inContainer: boolean;
  /** The environment, with the options as AIRLOCK_<KEY> variables. */
  env: NodeJS.ProcessEnv;
};

/** Reads the arguments of `npm start --`, with `env` below them. Throws OperatorError for an unknown option. */
export function parseStartOptions(args: string[], env: NodeJS.ProcessEnv): StartOptions {
  const { values } = parseCommandLine("npm start", { args, options: OPTIONS });
  const options: Record<string, string | undefined> = {
    AIRLOCK_HOST: values.host,
    AIRLOCK_PORT: values.port,
    AIRLOCK_DATA_DIR: values["data-dir"],
    AIRLOCK_DOCKER_HOST: values["docker-host"],
    AIRLOCK_MAX_WORKERS: values["max-workers"],
    AIRLOCK_LOG_LEVEL: values.verbose ? "debug" : undefined,
  };
  const set = Object.entries(options).filter(([, value]) => value !== undefined);
  const inContainer = values["in-container"] ?? false;
  return {
    help: values.help ?? false,
    inContainer,
    env: { ...(inContainer && IN_CONTAINER), ...env, ...Object.fromEntries(set) },
  };
}

/** What `npm start -- --help` prints. */
export function startHelp(): string {
  return `Usage: npm start -- [options]

Sets up what is missing (container engine, base image), starts the API and one agent,
runs a job as a self-check, and serves until Ctrl-C.

Options:
      --host <address>      address to listen on
      --port <number>       port to listen on; 0 picks one
      --data-dir <folder>   where database, artifacts and tokens are kept
      --docker-host <url>   the engine, as unix:///path or tcp://host:port
      --max-workers <n>     executions at once
      --in-container        listen on every address and ask for no key: for a container
                            whose port is published on the host's loopback only
  -v, --verbose             log more
  -h, --help                print this

Configuration: each key can stand in airlock.toml (or the file that AIRLOCK_CONFIG names), or in
the environment as AIRLOCK_<KEY>: AIRLOCK_PORT=9000 npm start. An option wins over the environment,
that over the file.

${describeKeys()}
`;
}

/** Throws OperatorError if the API could not listen on `host` and `port`. */
export async function checkAddress(host: string, port: number): Promise<void> {
  const server = createServer().listen(port, host);
  try {
    await once(server, "listening");
  } catch (error) {
    throw new OperatorError(explain(host, port, error as NodeJS.ErrnoException));
  } finally {
    server.close();
  }
}

/**
 * The URL at which processes of this machine reach an API that listens at `url`: replaces a
 * wildcard address.
 */
export function localUrl(url: string): string {
  return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:");
}

function explain(host: string, port: number, error: NodeJS.ErrnoException): string {
  switch (error.code ?? "") {
    case "EADDRINUSE":
      return `port ${port} on ${host} is taken: stop the program that has it (ss -ltnp 'sport = :${port}' names it), or choose another: npm start -- --port ${port + 1}`;
    case "EACCES":
      return `no permission to listen on port ${port}: choose one above 1023: npm start -- --port 8080`;
    case "EADDRNOTAVAIL":
    case "ENOTFOUND":
      return `${host} is not an address of this machine: npm start -- --host 127.0.0.1`;
    default:
      return `cannot listen on ${host}, port ${port}: ${error.message}`;
  }
}

/** The token between the API and its agent, kept in `<dataDir>/agent-token`; made on the first start. */
export function agentToken(dataDir: string): string {
  makeFolder(dataDir);
  const file = join(dataDir, "agent-token");
  return readToken(file) ?? makeToken(file);
}

/**
 * The name of the agent with this token. It stays the same after a restart, so that the agent finds
 * containers it left. It differs for each data folder, so that no agent takes another's containers
 * for its own. The name of a container's host is another after each start.
 */
export function agentName(token: string, host: string = hostname()): string {
  return `${host}-${createHash("sha256").update(token).digest("hex").slice(0, 8)}`;
}

function readToken(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8").trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/**
 * Writes a draft and links it, so that neither a crash nor a second start can leave half a token or
 * two tokens.
 */
function makeToken(file: string): string {
  const draft = `${file}.${process.pid}`;
  writeFileSync(draft, `${randomBytes(32).toString("hex")}\n`, { mode: 0o600, flush: true });
  try {
    linkSync(draft, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  } finally {
    rmSync(draft);
  }
  return readFileSync(file, "utf8").trim();
}
