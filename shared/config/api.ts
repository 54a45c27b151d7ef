import { z } from "zod";
import { TenantName } from "../wire/access.ts";
import { ConfiguredJobType, JobTypeName } from "../wire/job-types.ts";
import { WebhookType } from "../wire/webhooks.ts";

export const MiB = 1024 * 1024;
/** A key or token, long enough not to be guessed. */
export const key16 = z.string().min(16, "must be at least 16 characters");

/** A key of the configuration with its default. */
export function key<S extends z.ZodType>(
  schema: S,
  value: z.output<S>,
  what: string,
): z.ZodDefault<S> {
  return schema.default(value as never).describe(what);
}
export const flag = (value: boolean, what: string) => key(z.boolean(), value, what);
export function int(
  { min, max, default: value }: { min: number; max?: number; default: number },
  what: string,
) {
  const least = z.int().min(min);
  return key(max === undefined ? least : least.max(max), value, what);
}
/** A key that may be missing. */
export const optional = <S extends z.ZodType>(schema: S, what: string) =>
  schema.optional().describe(what);

export const text = z.string().min(1);
export const address = (protocol = /^https?$/) =>
  z
    .url({ protocol })
    .refine((url) => !/[@?#]/.test(url), "must be an address alone: no user, key or query");
const networks = z.array(
  z.union([z.ipv4(), z.ipv6(), z.cidrv4(), z.cidrv6()], "must be an IP address or a CIDR block"),
);

/** Keys that the API reads, and keys that both the API and the agent read. */
export const apiSettings = {
  host: key(text, "127.0.0.1", "Address that the API listens on."),
  port: int({ min: 0, max: 65_535, default: 8080 }, "Port the API listens on; 0 picks one."),
  data_dir: key(text, "./data", "Folder of the database, artifacts and tokens."),
  database_url: optional(
    z.string(),
    "Address of a libSQL database: file:…, http(s)://… or libsql://…; default: a file in data_dir.",
  ),
  database_auth_token: optional(z.string(), "Token for a remote libSQL server."),
  s3_endpoint: optional(
    address(),
    "Address of an S3-compatible service whose bucket stores the artifacts, so that several API processes can share them; default: a folder in data_dir. Node only.",
  ),
  s3_bucket: optional(
    z.string().regex(/^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/, "must be a bucket's name"),
    "Name of the bucket; it must exist.",
  ),
  s3_region: key(text, "us-east-1", "Region of the bucket, which requests are signed for."),
  s3_access_key_id: optional(
    text,
    "Access key that can list, read, write and delete in the bucket.",
  ),
  s3_secret_access_key: optional(text, "Secret of that access key."),
  s3_path_style: flag(
    true,
    "true: the bucket's name is in the path of an address; false: before the host's name.",
  ),
  log_level: key(
    z.enum(["debug", "info", "warning", "error"]),
    "info",
    "Lowest level that is logged.",
  ),
  log_format: key(
    z.enum(["text", "json"]),
    "text",
    "Format of log lines: text, or one JSON object each.",
  ),

  allow_runtime_requirements: flag(
    false,
    "Install the `requirements` of a request. Agents need the same setting.",
  ),
  production_mode: flag(false, "Refuse jobs of job types whose image is not built."),
  auto_build: flag(
    true,
    "Start a build when the first job of an unbuilt job type comes. false: refuse the job until somebody has requested the build.",
  ),
  max_queue_size: int({ min: 1, default: 100 }, "Number of executions that can be queued."),
  default_timeout: int({ min: 1, default: 30 }, "Default timeout of the code, in seconds."),
  max_timeout: int(
    { min: 1, max: 86_400, default: 3600 },
    "Largest timeout that a request may ask for, in seconds.",
  ),
  max_stdout_bytes: int(
    { min: 1024, default: MiB },
    "Bytes that are kept of stdout, and as many of stderr.",
  ),
  max_artifact_bytes: int(
    { min: 0, default: 100 * MiB },
    "Bytes of artifacts that are kept for each job.",
  ),
  max_request_bytes: int({ min: 1024, default: 10 * MiB }, "Largest body of a request, in bytes."),
  max_batch_bytes: int(
    { min: 1024, default: 32 * MiB },
    "Largest body of POST /execute/batch, and of a form in another service's protocol, in bytes.",
  ),
  max_event_streams: int(
    { min: 1, default: 1000 },
    "Most event streams that each API key can have open at one API process. Without keys, all clients share this number.",
  ),
  max_file_bytes: int(
    { min: 0, max: 5 * 1024 * MiB, default: 1024 * MiB },
    "Largest file of POST /files, in bytes. Workers take at most 100 MB.",
  ),
  max_files_bytes: int(
    { min: 0, default: 10 * 1024 * MiB },
    "Bytes of all files of POST /files together, above which uploads are refused; 0: no limit.",
  ),
  file_retention_hours: key(
    z.number().min(0.001),
    24,
    "Hours until an uploaded file that no record refers to is removed.",
  ),
  base_image: key(text, "python:3.13-slim", "Image of job types that name no other."),
  image_prefix: key(
    z
      .string()
      .max(128)
      .regex(
        /^[a-z0-9]+(?:[._:/-][a-z0-9]+)*$/,
        'must begin an image\'s name, such as "airlock" or "registry.example/team"',
      ),
    "airlock",
    "Built images are named <prefix>-<job type>.",
  ),
  image_registry: optional(
    z
      .string()
      .max(128)
      .regex(
        /^(localhost|[a-z0-9-]+(\.[a-z0-9-]+)+|[a-z0-9-]+(?=:))(:[0-9]+)?(\/[a-z0-9]+([._-][a-z0-9]+)*)*$/,
        'must be a registry\'s host, with a path perhaps, such as "registry.example:5000/team"',
      ),
    "Registry through which agents share the images that they build; default: they share them through the artifact store.",
  ),
  max_image_bytes: int(
    { min: 0, max: 8 * 1024 * MiB, default: 2 * 1024 * MiB },
    "Largest image, in unpacked bytes, that is shared through the artifact store; 0: none is. API and agents each apply their own value.",
  ),
  build_timeout: int({ min: 1, default: 1800 }, "Time limit of a build, in seconds."),
  job_types: key(z.record(JobTypeName, ConfiguredJobType), {}, "Job types by name."),
  tenant_job_types: int(
    { min: 0, max: 1000, default: 0 },
    "Job types that each tenant may make with PUT /job-types/{name}; 0: none. Agents build them only with agent_tenant_builds. See docs/guides/packages.md.",
  ),

  api_auth_enabled: flag(false, "Require an API key for every request."),
  api_keys: key(z.array(key16), [], "API keys that may run jobs; tenant: default."),
  operator_keys: key(
    z.array(key16),
    [],
    "API keys that may also manage agents, keys and tenants. Without API keys, every client on this machine may.",
  ),
  api_auth_header: key(
    z.string().regex(/^[A-Za-z0-9-]+$/, "must be a header name"),
    "X-API-Key",
    "Header that carries the key.",
  ),
  api_docs_public: flag(false, "Serve /docs and /openapi.json without a key."),
  allow_unauthenticated_network_access: flag(
    false,
    "Allow a host that is not loopback without keys: anyone who can reach the port can run code.",
  ),
  allowed_hosts: key(
    z.array(
      z
        .string()
        .toLowerCase()
        .regex(
          /^([a-z0-9._-]+|\[[0-9a-f:.]+\])$/,
          "must be a host's name or address, without a port",
        ),
    ),
    [],
    "Without keys: host names that requests may use besides localhost, such as the name of a reverse proxy. If `host` is not loopback, every name is accepted unless this is set.",
  ),
  allowed_origins: key(
    z.array(
      z
        .string()
        .toLowerCase()
        .regex(
          /^[a-z][a-z0-9+.-]*:\/\/[^/?#@\s]+$/,
          "must be an origin, such as https://app.example, without a path",
        ),
    ),
    [],
    "Origins of web pages besides the service's own that may use /mcp.",
  ),
  api_rate_limit_enabled: flag(true, "Limit the rate of requests."),
  api_rate_limit_requests: int(
    { min: 1, default: 120 },
    "Requests that each key, or without one each client address (IPv6: each /64), can make in a window.",
  ),
  api_rate_limit_window_seconds: int(
    { min: 1, default: 60 },
    "Length of the window of the rate limit, in seconds.",
  ),
  trusted_proxies: key(
    networks,
    [],
    "Proxies whose X-Forwarded-For header is trusted: addresses or CIDR blocks.",
  ),
  dlq_retention_days: key(z.number().min(0.001), 30, "Days until a dead letter is removed."),
  audit_retention_days: key(
    z.number().min(31),
    365,
    "Days until an entry of the audit log is removed.",
  ),
  execution_retention_days: key(
    z.number().min(0),
    30,
    "Days until an ended execution is removed, with its artifacts and dead letter; 0: never.",
  ),
  max_database_bytes: int(
    { min: 0, default: 0 },
    "Size of the database, in bytes without free pages, above which submissions are refused; 0: no limit.",
  ),
  agent_tokens: key(
    z.array(key16),
    [],
    "Tokens that are accepted from agents, beside those of agents that joined.",
  ),

  stop_delay_s: key(
    z.number().min(0),
    0.5,
    "Seconds for which a stopping API keeps serving while /health/ready answers 503, so that a load balancer notices. Node only.",
  ),
  poll_wait_s: key(z.number().min(0.1).max(60), 25, "Seconds an agent's poll waits for work."),
  liveness_s: key(
    z.number().min(0.4),
    30,
    "An agent that has not contacted the API for this many seconds counts as dead: it is left out of /health and gets no work. Agents renew their leases four times in this time.",
  ),
  lease_ttl_s: key(
    z.number().min(0.4),
    180,
    "Seconds until a lease that is not renewed expires. A shorter outage of the API or its database ends no running job. The agent gives a job up before its lease expires; after that the API leases the job again. At least liveness_s.",
  ),
};

/** Keys of the API about sessions. */
export const sessionSettings = {
  max_sessions_per_tenant: int(
    { min: 0, default: 100 },
    "Sessions that each tenant can have at once; 0: none.",
  ),
  max_session_lifetime: int(
    { min: 1, max: 604_800, default: 86_400 },
    "Longest `lifetime` that a request may ask for, in seconds.",
  ),
};

/** Keys of the API about other services' protocols. */
export const compatSettings = {
  compat: key(
    z.array(z.enum(["sandbox-fusion", "piston", "dify", "librechat", "e2b"])),
    [],
    "Protocols of other services to speak, each below /compat/<name>.",
  ),
  compat_key: optional(
    key16,
    "The API key of requests that bring none, in protocols that need none (sandbox-fusion, piston, librechat). If the service has keys, such requests are refused without it.",
  ),
  compat_held: int(
    { min: 1, default: 512 },
    "Requests in other services' protocols that are open at the same time; more are refused.",
  ),
};

/** `whsec_` and 24 to 64 bytes as base64, as Standard Webhooks has them. */
const WebhookSecret = z.string().refine(isSecret, {
  error: "must be whsec_ followed by 24 to 64 random bytes as base64 (openssl rand -base64 32)",
});

function isSecret(text: string): boolean {
  if (!/^whsec_[A-Za-z0-9+/]{32,88}={0,2}$/.test(text)) return false;
  try {
    const { length } = atob(text.slice("whsec_".length));
    return length >= 24 && length <= 64;
  } catch {
    return false;
  }
}

/** Every call is signed with each of them, so that receivers can change from one to the other. */
const WebhookSecrets = z.array(WebhookSecret).min(1).max(2, "must be one or two");

const WebhookEndpointName = z
  .string()
  .regex(/^[a-z0-9][a-z0-9_-]{0,63}$/, "must be lower-case letters, digits, _ or -");

/** A receiver that the operator configures. */
const WebhookEndpoint = z.strictObject({
  url: z
    .url({ protocol: /^https?$/ })
    .refine((url) => !hasUser(url), "must have no user or password"),
  events: z.array(WebhookType).min(1).optional(),
  tenants: z.array(TenantName).min(1).optional(),
  secrets: WebhookSecrets,
});
type WebhookEndpoint = z.infer<typeof WebhookEndpoint>;

function hasUser(url: string): boolean {
  if (!URL.canParse(url)) return false;
  const { username, password } = new URL(url);
  return username !== "" || password !== "";
}

/** A host over HTTPS, or over HTTP where the entry begins so. */
const CallbackHost = z
  .string()
  .toLowerCase()
  .regex(
    /^(http:\/\/)?(\*\.)?([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?$/,
    'must be a host such as "hooks.example", "*.example:8443" or "http://10.1.2.3:8080"',
  );

/** What the `callback_url` of a request may be, and how its calls are signed. */
const WebhookCallbacks = z.strictObject({
  hosts: z.array(CallbackHost).min(1),
  secrets: WebhookSecrets,
});

export const webhookSettings = {
  webhook_endpoints: key(
    z.record(WebhookEndpointName, WebhookEndpoint),
    {},
    "Receivers of webhooks by name: `url`, `secrets` (one or two), `events` (default: all), and `tenants` whose events it gets (default: all). See docs/guides/webhooks.md.",
  ),
  webhook_callbacks: optional(
    WebhookCallbacks,
    "Lets requests name a receiver of their own (`callback_url`): `hosts` that it may have (over HTTPS; over plain HTTP those that begin with `http://`), and `secrets` (one or two) that sign its calls. Default: no host.",
  ),
  webhook_private_addresses: key(
    networks,
    [],
    "Addresses and CIDR blocks outside the internet that webhooks may reach, such as a receiver in your own network. On Workers: single addresses.",
  ),
};
