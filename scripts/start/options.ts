import { parseCommandLine } from "../command/arguments.ts";
import { describeKeys } from "../command/config.ts";

const OPTIONS = {
  help: { type: "boolean", short: "h" },
  host: { type: "string" },
  port: { type: "string" },
  "data-dir": { type: "string" },
  "docker-host": { type: "string" },
  "max-workers": { type: "string" },
  verbose: { type: "boolean", short: "v" },
} as const;

export type StartOptions = {
  help: boolean;
  /** The options as AIRLOCK_<KEY> variables. */
  env: Record<string, string>;
};

/** Reads the arguments of `npm start --`. Throws OperatorError for an unknown option. */
export function parseStartOptions(args: string[]): StartOptions {
  const { values } = parseCommandLine("npm start", { args, options: OPTIONS });
  const env: Record<string, string | undefined> = {
    AIRLOCK_HOST: values.host,
    AIRLOCK_PORT: values.port,
    AIRLOCK_DATA_DIR: values["data-dir"],
    AIRLOCK_DOCKER_HOST: values["docker-host"],
    AIRLOCK_MAX_WORKERS: values["max-workers"],
    AIRLOCK_LOG_LEVEL: values.verbose ? "debug" : undefined,
  };
  const set = Object.entries(env).filter(
    (entry): entry is [string, string] => entry[1] !== undefined,
  );
  return { help: values.help ?? false, env: Object.fromEntries(set) };
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
  -v, --verbose             log more
  -h, --help                print this

Configuration: each key can stand in airlock.toml (or the file that AIRLOCK_CONFIG names), or in
the environment as AIRLOCK_<KEY>: AIRLOCK_PORT=9000 npm start. An option wins over the environment,
that over the file.

${describeKeys()}
`;
}
