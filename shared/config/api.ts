import { z } from "zod";
import { TenantName } from "../wire/access.ts";
import { ConfiguredJobType, JobTypeName } from "../wire/job-types.ts";
import { WebhookType } from "../wire/webhooks.ts";

export const MiB = 1024 * 1024;
/** A key or token, long enough not to be guessed. */
export const key16 = z.string().min(16, "must be at least 16 characters");

/** Keys that the API reads, and keys that both the API and the agent read. */
export const apiSettings = {
  host: z.string().min(1).default("127.0.0.1").describe("Address that the API listens on."),
  port: z.int().min(0).max(65_535).default(8080).describe("Port the API listens on; 0 picks one."),
  data_dir: z
    .string()
    .min(1)
    .default("./data")
    .describe("Folder of the database, artifacts and tokens."),
  database_url: z
    .string()
    .optional()
    .describe(
      "Address of a libSQL database: file:…, http(s)://… or libsql://…; default: a file in data_dir.",
    ),
  database_auth_token: z.string().optional().describe("Token for a remote libSQL server."),
  s3_endpoint: z
    .url({ protocol: /^https?$/ })
    .refine((url) => !/[@?#]/.test(url), "must be an address alone: no user, key or query")
    .optional()
    .describe(
      "Address of an S3-compatible service whose bucket stores the artifacts, so that several API processes can share them; default: a folder in data_dir. Node only.",
    ),
  s3_bucket: z
    .string()
    .regex(/^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/, "must be a bucket's name")
    .optional()
    .describe("Name of the bucket; it must exist."),
  s3_region: z
    .string()
    .min(1)
    .default("us-east-1")
    .describe("Region of the bucket, which requests are signed for."),
  s3_access_key_id: z
    .string()
    .min(1)
    .optional()
    .describe("Access key that can list, read, write and delete in the bucket."),
  s3_secret_access_key: z.string().min(1).optional().describe("Secret of that access key."),
  s3_path_style: z
    .boolean()
    .default(true)
    .describe(
      "true: the bucket's name is in the path of an address; false: before the host's name.",
    ),
  log_level: z
    .enum(["debug", "info", "warning", "error"])
    .default("info")
    .describe("Lowest level that is logged."),
  log_format: z
    .enum(["text", "json"])
    .default("text")
    .describe("Format of log lines: text, or one JSON object each."),

  allow_runtime_requirements: z
    .boolean()
    .default(false)
    .describe("Install the `requirements` of a request. Agents need the same setting."),
  production_mode: z
    .boolean()
    .default(false)
    .describe("Refuse jobs of job types whose image is not built."),
  auto_build: z
    .boolean()
    .default(true)
    .describe(
      "Start a build when the first job of an unbuilt job type comes. false: refuse the job until somebody has requested the build.",
    ),
  max_queue_size: z.int().min(1).default(100).describe("Number of executions that can be queued."),
  default_timeout: z.int().min(1).default(30).describe("Default timeout of the code, in seconds."),
  max_timeout: z
    .int()
    .min(1)
    .max(86_400)
    .default(3600)
    .describe("Largest timeout that a request may ask for, in seconds."),
  max_stdout_bytes: z
    .int()
    .min(1024)
    .default(MiB)
    .describe("Bytes that are kept of stdout, and as many of stderr."),
  max_artifact_bytes: z
    .int()
    .min(0)
    .default(100 * MiB)
    .describe("Bytes of artifacts that are kept for each job."),
  max_request_bytes: z
    .int()
    .min(1024)
    .default(10 * MiB)
    .describe("Largest body of a request, in bytes."),
  max_batch_bytes: z
    .int()
    .min(1024)
    .default(32 * MiB)
    .describe(
      "Largest body of POST /execute/batch, and of a form in another service's protocol, in bytes.",
    ),
  max_event_streams: z
    .int()
    .min(1)
    .default(1000)
    .describe(
      "Most event streams that each API key can have open at one API process. Without keys, all clients share this number.",
    ),
  max_file_bytes: z
    .int()
    .min(0)
    .max(5 * 1024 * MiB)
    .default(1024 * MiB)
    .describe("Largest file of POST /files, in bytes. Workers take at most 100 MB."),
  max_files_bytes: z
    .int()
    .min(0)
    .default(10 * 1024 * MiB)
    .describe(
      "Bytes of all files of POST /files together, above which uploads are refused; 0: no limit.",
    ),
  file_retention_hours: z
    .number()
    .min(0.001)
    .default(24)
    .describe("Hours until an uploaded file that no record refers to is removed."),
  base_image: z
    .string()
    .min(1)
    .default("python:3.13-slim")
    .describe("Image of job types that name no other."),
  image_prefix: z
    .string()
    .max(128)
    .regex(
      /^[a-z0-9]+(?:[._:/-][a-z0-9]+)*$/,
      'must begin an image\'s name, such as "airlock" or "registry.example/team"',
    )
    .default("airlock")
    .describe("Built images are named <prefix>-<job type>."),
  image_registry: z
    .string()
    .max(128)
    .regex(
      /^(localhost|[a-z0-9-]+(\.[a-z0-9-]+)+|[a-z0-9-]+(?=:))(:[0-9]+)?(\/[a-z0-9]+([._-][a-z0-9]+)*)*$/,
      'must be a registry\'s host, with a path perhaps, such as "registry.example:5000/team"',
    )
    .optional()
    .describe(
      "Registry through which agents share the images that they build; default: they share them through the artifact store.",
    ),
  max_image_bytes: z
    .int()
    .min(0)
    .max(8 * 1024 * MiB)
    .default(2 * 1024 * MiB)
    .describe(
      "Largest image, in unpacked bytes, that is shared through the artifact store; 0: none is. API and agents each apply their own value.",
    ),
  build_timeout: z.int().min(1).default(1800).describe("Time limit of a build, in seconds."),
  job_types: z.record(JobTypeName, ConfiguredJobType).default({}).describe("Job types by name."),

  api_auth_enabled: z.boolean().default(false).describe("Require an API key for every request."),
  api_keys: z.array(key16).default([]).describe("API keys that may run jobs; tenant: default."),
  operator_keys: z
    .array(key16)
    .default([])
    .describe(
      "API keys that may also manage agents, keys and tenants. Without API keys, every client on this machine may.",
    ),
  api_auth_header: z
    .string()
    .regex(/^[A-Za-z0-9-]+$/, "must be a header name")
    .default("X-API-Key")
    .describe("Header that carries the key."),
  api_docs_public: z
    .boolean()
    .default(false)
    .describe("Serve /docs and /openapi.json without a key."),
  allow_unauthenticated_network_access: z
    .boolean()
    .default(false)
    .describe(
      "Allow a host that is not loopback without keys: anyone who can reach the port can run code.",
    ),
  allowed_hosts: z
    .array(
      z
        .string()
        .toLowerCase()
        .regex(
          /^([a-z0-9._-]+|\[[0-9a-f:.]+\])$/,
          "must be a host's name or address, without a port",
        ),
    )
    .default([])
    .describe(
      "Without keys: host names that requests may use besides localhost, such as the name of a reverse proxy. If `host` is not loopback, every name is accepted unless this is set.",
    ),
  allowed_origins: z
    .array(
      z
        .string()
        .toLowerCase()
        .regex(
          /^[a-z][a-z0-9+.-]*:\/\/[^/?#@\s]+$/,
          "must be an origin, such as https://app.example, without a path",
        ),
    )
    .default([])
    .describe("Origins of web pages besides the service's own that may use /mcp."),
  api_rate_limit_enabled: z.boolean().default(true).describe("Limit the rate of requests."),
  api_rate_limit_requests: z
    .int()
    .min(1)
    .default(120)
    .describe(
      "Requests that each key, or without one each client address (IPv6: each /64), can make in a window.",
    ),
  api_rate_limit_window_seconds: z
    .int()
    .min(1)
    .default(60)
    .describe("Length of the window of the rate limit, in seconds."),
  trusted_proxies: z
    .array(
      z.union(
        [z.ipv4(), z.ipv6(), z.cidrv4(), z.cidrv6()],
        "must be an IP address or a CIDR block",
      ),
    )
    .default([])
    .describe("Proxies whose X-Forwarded-For header is trusted: addresses or CIDR blocks."),
  dlq_retention_days: z
    .number()
    .min(0.001)
    .default(30)
    .describe("Days until a dead letter is removed."),
  audit_retention_days: z
    .number()
    .min(31)
    .default(365)
    .describe("Days until an entry of the audit log is removed."),
  execution_retention_days: z
    .number()
    .min(0)
    .default(30)
    .describe(
      "Days until an ended execution is removed, with its artifacts and dead letter; 0: never.",
    ),
  max_database_bytes: z
    .int()
    .min(0)
    .default(0)
    .describe(
      "Size of the database, in bytes without free pages, above which submissions are refused; 0: no limit.",
    ),
  agent_tokens: z
    .array(key16)
    .default([])
    .describe("Tokens that are accepted from agents, beside those of agents that joined."),

  stop_delay_s: z
    .number()
    .min(0)
    .default(0.5)
    .describe(
      "Seconds for which a stopping API keeps serving while /health/ready answers 503, so that a load balancer notices. Node only.",
    ),
  poll_wait_s: z
    .number()
    .min(0.1)
    .max(60)
    .default(25)
    .describe("Seconds an agent's poll waits for work."),
  liveness_s: z
    .number()
    .min(0.4)
    .default(30)
    .describe(
      "An agent that has not contacted the API for this many seconds counts as dead: it is left out of /health and gets no work. Agents renew their leases four times in this time.",
    ),
  lease_ttl_s: z
    .number()
    .min(0.4)
    .default(180)
    .describe(
      "Seconds until a lease that is not renewed expires. A shorter outage of the API or its database ends no running job. The agent gives a job up before its lease expires; after that the API leases the job again. At least liveness_s.",
    ),
};

/** Keys of the API about sessions. */
export const sessionSettings = {
  max_sessions_per_tenant: z
    .int()
    .min(0)
    .default(100)
    .describe("Sessions that each tenant can have at once; 0: none."),
  max_session_lifetime: z
    .int()
    .min(1)
    .max(604_800)
    .default(86_400)
    .describe("Longest `lifetime` that a request may ask for, in seconds."),
};

/** Keys of the API about other services' protocols. */
export const compatSettings = {
  compat: z
    .array(z.enum(["sandbox-fusion", "piston", "dify", "librechat", "e2b"]))
    .default([])
    .describe("Protocols of other services to speak, each below /compat/<name>."),
  compat_key: key16
    .optional()
    .describe(
      "The API key of requests that bring none, in protocols that need none (sandbox-fusion, piston, librechat). If the service has keys, such requests are refused without it.",
    ),
  compat_held: z
    .int()
    .min(1)
    .default(512)
    .describe(
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
  webhook_endpoints: z
    .record(WebhookEndpointName, WebhookEndpoint)
    .default({})
    .describe(
      "Receivers of webhooks by name: `url`, `secrets` (one or two), `events` (default: all), and `tenants` whose events it gets (default: all). See docs/guides/webhooks.md.",
    ),
  webhook_callbacks: WebhookCallbacks.optional().describe(
    "Lets requests name a receiver of their own (`callback_url`): `hosts` that it may have (over HTTPS; over plain HTTP those that begin with `http://`), and `secrets` (one or two) that sign its calls. Default: no host.",
  ),
  webhook_private_addresses: z
    .array(
      z.union(
        [z.ipv4(), z.ipv6(), z.cidrv4(), z.cidrv6()],
        "must be an IP address or a CIDR block",
      ),
    )
    .default([])
    .describe(
      "Addresses and CIDR blocks outside the internet that webhooks may reach, such as a receiver in your own network. On Workers: single addresses.",
    ),
};
