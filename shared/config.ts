import { z } from "zod";
import { JobTypeDefinition, JobTypeName, MemorySize, NetworkMode } from "./job-type.ts";

const MiB = 1024 * 1024;
const key16 = z.string().min(16, "must be at least 16 characters");

/**
 * Every configuration key: interface-spec.md "Configuration keys" and design.md. A key `k` is read
 * from airlock.toml as `k` and from the environment as `AIRLOCK_<K>`; the environment wins.
 */
export const Config = z.strictObject({
  host: z.string().min(1).default("127.0.0.1").describe("Address the API listens on."),
  port: z.int().min(0).max(65_535).default(8080).describe("Port the API listens on; 0 picks one."),
  data_dir: z
    .string()
    .min(1)
    .default("./data")
    .describe("Folder of the database, artifacts and tokens."),
  database_url: z
    .string()
    .optional()
    .describe("libSQL: file:…, http(s)://… or libsql://…; default: a file in data_dir."),
  database_auth_token: z.string().optional().describe("Token for a remote libSQL server."),
  log_level: z
    .enum(["debug", "info", "warning", "error"])
    .default("info")
    .describe("Lowest level logged."),
  log_format: z
    .enum(["text", "json"])
    .default("text")
    .describe("Log lines as text, or as one JSON object each."),

  allow_runtime_requirements: z
    .boolean()
    .default(false)
    .describe("Install the `requirements` of a request; agents have to be set to it too."),
  production_mode: z.boolean().default(false).describe("Require pre-built images."),
  max_queue_size: z.int().min(1).default(100).describe("Queued executions accepted at once."),
  default_timeout: z.int().min(1).default(30).describe("Seconds; default timeout of the code."),
  max_timeout: z
    .int()
    .min(1)
    .max(86_400)
    .default(3600)
    .describe("Seconds; largest accepted timeout."),
  max_stdout_bytes: z.int().min(1024).default(MiB).describe("Bytes kept of stdout, and of stderr."),
  max_artifact_bytes: z
    .int()
    .min(0)
    .default(100 * MiB)
    .describe("Bytes of artifacts kept per job."),
  max_request_bytes: z
    .int()
    .min(1024)
    .default(10 * MiB)
    .describe("Largest request body, bytes."),
  base_image: z
    .string()
    .min(1)
    .default("python:3.13-slim")
    .describe("Image of job types that name none."),
  default_memory_limit: MemorySize.default("512m").describe(
    "Memory of the built-in default job type: 512m, 2g; at least 32m.",
  ),
  image_prefix: z
    .string()
    .max(128)
    .regex(
      /^[a-z0-9]+(?:[._:/-][a-z0-9]+)*$/,
      'must begin an image\'s name, such as "airlock" or "registry.example/team"',
    )
    .default("airlock")
    .describe("Built images are named <prefix>-<job type>."),
  build_timeout: z.int().min(1).default(1800).describe("Seconds that a build may take."),
  job_types: z.record(JobTypeName, JobTypeDefinition).default({}).describe("Job types by name."),

  api_auth_enabled: z.boolean().default(false).describe("Require an API key."),
  api_keys: z.array(key16).default([]).describe("Accepted API keys."),
  api_auth_header: z
    .string()
    .regex(/^[A-Za-z0-9-]+$/, "must be a header name")
    .default("X-API-Key")
    .describe("Header that carries the key."),
  api_docs_public: z
    .boolean()
    .default(false)
    .describe("Open /docs and /openapi.json without a key."),
  metrics_public: z.boolean().default(false).describe("Open /metrics without a key."),
  allow_unauthenticated_network_access: z
    .boolean()
    .default(false)
    .describe("Allow a non-loopback host without keys."),
  api_rate_limit_enabled: z.boolean().default(true).describe("Limit the rate of requests."),
  api_rate_limit_requests: z
    .int()
    .min(1)
    .default(120)
    .describe("Requests that a key, or else a client address, has per window."),
  api_rate_limit_window_seconds: z.int().min(1).default(60).describe("Length of the window."),
  trusted_proxies: z
    .array(
      z.union(
        [z.ipv4(), z.ipv6(), z.cidrv4(), z.cidrv6()],
        "must be an IP address or a CIDR block",
      ),
    )
    .default([])
    .describe("Proxies whose X-Forwarded-For is believed: addresses or CIDR blocks."),
  dlq_retention_days: z
    .number()
    .min(0.001)
    .default(30)
    .describe("Days until a dead letter is removed."),
  execution_retention_days: z
    .number()
    .min(0)
    .default(0)
    .describe(
      "Days until an ended execution is removed, with its artifacts and dead letter; 0: never.",
    ),
  agent_tokens: z.array(key16).default([]).describe("Tokens that agents may present."),

  poll_wait_s: z
    .number()
    .min(0.1)
    .max(60)
    .default(25)
    .describe("Seconds an agent's poll waits for work."),
  lease_ttl_s: z.number().min(1).default(30).describe("Seconds until an unrenewed lease expires."),
  renew_every_s: z.number().min(0.1).default(8).describe("Seconds between an agent's renewals."),

  api_url: z
    .url({ protocol: /^https?$/ })
    .default("http://127.0.0.1:8080")
    .describe("Agent: address of the API."),
  agent_token: key16.optional().describe("Agent: its bearer token."),
  agent_name: z
    .string()
    .min(1)
    .max(128)
    .optional()
    .describe("Agent: its name; default: the host name."),
  agent_labels: z
    .record(z.string(), z.string())
    .default({})
    .describe("Agent: labels that job types can ask for."),
  agent_job_types: z
    .array(z.string().min(1).max(128))
    .max(1000)
    .optional()
    .describe("Agent: job types it accepts, `*` for any part of a name; default: all."),
  agent_images: z
    .array(z.string().min(1))
    .optional()
    .describe(
      "Agent: images it accepts, to run and to build: references, or ids (sha256:…), `*` for any text without a slash; default: all.",
    ),
  agent_networks: z
    .array(NetworkMode)
    .optional()
    .describe(
      "Agent: networks it accepts; a build that installs packages needs bridge; default: all.",
    ),
  agent_runtimes: z
    .array(z.string().min(1))
    .optional()
    .describe("Agent: engine runtimes it accepts, `*` for any part of a name; default: all."),
  agent_max_memory: MemorySize.optional().describe(
    "Agent: most memory of a job it accepts: 512m, 2g; default: any.",
  ),
  agent_max_cpus: z
    .number()
    .positive()
    .optional()
    .describe("Agent: most CPUs of a job it accepts; default: any."),
  agent_max_gpus: z
    .int()
    .min(0)
    .optional()
    .describe("Agent: most GPUs of a job it accepts; default: any."),
  agent_max_timeout: z
    .int()
    .min(1)
    .optional()
    .describe("Agent: longest timeout of a job it accepts, seconds; default: any."),
  agent_builds: z
    .boolean()
    .default(true)
    .describe("Agent: build images, which runs pip as root in a container with a network."),
  docker_host: z
    .string()
    .optional()
    .describe("Agent: engine address; default: DOCKER_HOST, else the usual sockets."),
  max_workers: z.int().min(1).max(1000).default(4).describe("Agent: executions at once."),
  warm_pool_size: z
    .int()
    .min(0)
    .max(1000)
    .default(2)
    .describe(
      "Agent: containers kept ready for each kind of job that came lately, and more of those that come often; 0 for none.",
    ),
  warm_pool_max: z
    .int()
    .min(0)
    .max(10_000)
    .default(16)
    .describe("Agent: containers kept ready at the most, of all kinds together."),
  warm_pool_idle_s: z
    .number()
    .min(1)
    .default(600)
    .describe("Agent: seconds that a kind of job is kept ready after the last of it."),
  container_runtime: z.string().min(1).optional().describe("Agent: engine runtime, such as runsc."),
  security_mode: z
    .enum(["permissive", "strict"])
    .default("permissive")
    .describe("strict: fail jobs rather than fall back from runsc."),
  enable_seccomp: z
    .boolean()
    .default(true)
    .describe("Agent: filter the system calls of the code; gVisor brings its own kernel instead."),
  pip_index_url: z
    .url({ protocol: /^https?$/ })
    .optional()
    .describe("Agent: package index that builds and jobs install from; default: PyPI."),
  pip_find_links: z
    .string()
    .min(1)
    .optional()
    .describe(
      "Agent: folder of wheels that builds and jobs install from; without pip_index_url no index is asked.",
    ),
  pip_ca_file: z
    .string()
    .min(1)
    .optional()
    .describe("Agent: certificates (PEM) that the package index is trusted by."),
  enable_runtime_dependency_cache: z
    .boolean()
    .default(false)
    .describe("Agent: keep installed `requirements` for the next job that asks for the same."),
  dependency_cache_dir: z
    .string()
    .min(1)
    .optional()
    .describe("Agent: folder of that cache; default: dependency-cache in data_dir."),
  dependency_cache_bytes: z
    .int()
    .min(MiB)
    .default(2048 * MiB)
    .describe("Agent: bytes of that cache; what was not used for longest goes first."),
  drain_grace_s: z
    .number()
    .min(0)
    .default(10)
    .describe("Agent: seconds that running jobs get at a stop."),
  spool_dir: z
    .string()
    .optional()
    .describe(
      "Agent: folder for artifacts on their way; default: under the system's temporary folder.",
    ),
});
export type Config = z.infer<typeof Config>;

export class ConfigError extends Error {
  override name = "ConfigError";
}

/**
 * Reads the configuration from a parsed airlock.toml and the environment.
 *
 * @throws ConfigError naming the key, the value and what is allowed.
 */
export function loadConfig(
  file: Record<string, unknown>,
  env: Record<string, string | undefined>,
): Config {
  const given = { ...file, ...fromEnv(env) };
  const parsed = Config.safeParse(given);
  if (parsed.success) return parsed.data;
  throw new ConfigError(parsed.error.issues.map((issue) => describeIssue(issue, given)).join("\n"));
}

const prefix = "AIRLOCK_";

function fromEnv(env: Record<string, string | undefined>): Record<string, unknown> {
  const values: Record<string, unknown> = {};
  for (const [name, text] of Object.entries(env)) {
    if (!name.startsWith(prefix) || text === undefined || text === "") continue;
    const key = name.slice(prefix.length).toLowerCase();
    values[key] = fromText(key, text);
  }
  return values;
}

/** Text of an environment variable as the key's own type; a list may be comma-separated or JSON. */
function fromText(key: string, text: string): unknown {
  switch (kindOf(key)) {
    case "string":
    case "enum":
      return text;
    case "array":
      return text.trim().startsWith("[")
        ? fromJson(text)
        : text.split(",").map((item) => item.trim());
    default:
      return fromJson(text);
  }
}

/** The schema type of a key under its defaults: "string", "array", "number", "boolean", … */
function kindOf(key: string): string {
  let schema: z.ZodType = Object.hasOwn(Config.shape, key)
    ? Config.shape[key as keyof Config]
    : z.unknown();
  while (schema instanceof z.ZodDefault || schema instanceof z.ZodOptional) {
    schema = schema.unwrap() as z.ZodType;
  }
  return schema.def.type;
}

function fromJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const secretKeys = new Set([
  "api_keys",
  "agent_tokens",
  "agent_token",
  "database_auth_token",
  "pip_index_url",
]);

/** Keys and tokens, and whatever of a job type holds its `env`. */
function isSecret([key = "", , field]: string[]): boolean {
  return secretKeys.has(key) || (key === "job_types" && (field === undefined || field === "env"));
}

function describeIssue(issue: z.core.$ZodIssue, given: Record<string, unknown>): string {
  const path = issue.path.map(String);
  if (issue.code === "unrecognized_keys") {
    const at = path.length ? ` in ${path.join(".")}` : "";
    return `unknown configuration key${at}: ${issue.keys.join(", ")}; docs/configuration.md lists the keys`;
  }
  const shown = isSecret(path) ? "(secret)" : JSON.stringify(valueAt(given, issue.path));
  return `${path.join(".")} = ${shown}: ${issue.message}`;
}

function valueAt(value: unknown, path: PropertyKey[]): unknown {
  let at = value;
  for (const step of path) at = (at as Record<PropertyKey, unknown> | undefined)?.[step];
  return at;
}
