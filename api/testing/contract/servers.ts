import { receiverSecret } from "../receiver.ts";
import { reservePort } from "../reserve-port.ts";

/** Keys and tokens that the servers under test accept. */
export const agentTokens = ["agent-token-0-0123456789", "agent-token-1-0123456789"] as const;
export const apiKeys = ["api-key-0-0123456789abcd", "api-key-1-0123456789abcd"] as const;
export const operatorKey = "operator-key-0123456789";
/** For rows beside those that use up the limit of the other key. */
export const spareOperatorKey = "spare-operator-key-0123456789";
export const customHeader = "X-Airlock-Key";

export const maxRequestBytes = 64 * 1024;
export const maxTimeoutS = 600;
export const maxQueueSize = 3;
export const maxSessions = 5;
export const maxEventStreams = 2;
/** Longer than a slow machine needs for the first post of a lease. */
const leaseTtlS = 4;
export const maxFileBytes = 1_000_000;
export const maxFilesBytes = 2000;
export const maxImageBytes = 50_000;

const common = {
  AIRLOCK_AGENT_TOKENS: agentTokens.join(","),
  AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
  AIRLOCK_LOG_LEVEL: "error",
  AIRLOCK_MAX_REQUEST_BYTES: String(maxRequestBytes),
  AIRLOCK_MAX_TIMEOUT: String(maxTimeoutS),
  AIRLOCK_MAX_ARTIFACT_BYTES: "100000",
  AIRLOCK_MAX_FILE_BYTES: String(maxFileBytes),
  AIRLOCK_JOB_TYPES: JSON.stringify({ ml: { memory_limit: "1g", timeout: 300 } }),
};

const locked = {
  AIRLOCK_API_AUTH_ENABLED: "true",
  AIRLOCK_API_KEYS: apiKeys.join(","),
  AIRLOCK_OPERATOR_KEYS: operatorKey,
};

/** Job types of the rows about builds. Built images stay, so each row has its own type. */
const buildable = Object.fromEntries(
  Array.from({ length: 16 }, (_, n) => [`build-${n}`, { requirements: ["numpy==2.3.4"] }]),
);

const withImages = Object.fromEntries(
  Array.from({ length: 6 }, (_, n) => [`image-${n}`, { requirements: ["numpy==2.3.4"] }]),
);

/** Where rows start a receiver of webhooks. */
export const receiverPort = await reservePort();
const receiverUrl = `http://127.0.0.1:${receiverPort}`;

/** The configurations that rows of the table need, as AIRLOCK_ variables. */
export const servers = {
  open: common,
  "with keys": { ...common, ...locked, AIRLOCK_MAX_EVENT_STREAMS: String(maxEventStreams) },
  "behind a reverse proxy": { ...common, AIRLOCK_ALLOWED_HOSTS: "Tools.example" },
  "with a header of its own": {
    ...common,
    AIRLOCK_API_AUTH_ENABLED: "true",
    AIRLOCK_API_KEYS: apiKeys[0],
    AIRLOCK_API_AUTH_HEADER: customHeader,
    AIRLOCK_API_DOCS_PUBLIC: "true",
  },
  "with other protocols": {
    ...common,
    ...locked,
    AIRLOCK_COMPAT: "sandbox-fusion,piston,dify,librechat,e2b",
    AIRLOCK_JOB_TYPES: JSON.stringify({
      base: { tenants: ["others"] },
      open: { network: "bridge" },
      theirs: { tenants: ["others"], network: "bridge" },
    }),
    AIRLOCK_COMPAT_KEY: apiKeys[0],
    AIRLOCK_MAX_QUEUE_SIZE: String(maxQueueSize),
    AIRLOCK_API_RATE_LIMIT_ENABLED: "true",
    AIRLOCK_API_RATE_LIMIT_REQUESTS: "1000",
  },
  "with the rate limit of the contract": {
    ...common,
    ...locked,
    AIRLOCK_OPERATOR_KEYS: `${operatorKey},${spareOperatorKey}`,
    AIRLOCK_API_RATE_LIMIT_ENABLED: "",
  },
  "with a short window": {
    ...common,
    ...locked,
    AIRLOCK_API_RATE_LIMIT_ENABLED: "true",
    AIRLOCK_API_RATE_LIMIT_REQUESTS: "20",
    AIRLOCK_API_RATE_LIMIT_WINDOW_SECONDS: "3",
  },
  "with requirements": { ...common, AIRLOCK_ALLOW_RUNTIME_REQUIREMENTS: "true" },
  "with a short queue": {
    ...common,
    AIRLOCK_MAX_QUEUE_SIZE: String(maxQueueSize),
    AIRLOCK_MAX_BATCH_BYTES: "200000",
    AIRLOCK_MAX_FILES_BYTES: String(maxFilesBytes),
  },
  "with a long queue": {
    ...common,
    AIRLOCK_MAX_QUEUE_SIZE: "5000",
    AIRLOCK_MAX_REQUEST_BYTES: "4000000",
    AIRLOCK_JOB_TYPES: JSON.stringify({ small: { memory_limit: "64m" } }),
  },
  "with job types": {
    ...common,
    AIRLOCK_IMAGE_PREFIX: "registry.example/team",
    AIRLOCK_MAX_IMAGE_BYTES: String(maxImageBytes),
    AIRLOCK_JOB_TYPES: JSON.stringify({
      ...buildable,
      ...withImages,
      versioned: { python_version: "3.12" },
      official: { base_image: "docker.io/library/python:3.11.9-slim" },
      custom: { base_image: "registry.example/science:7", memory_limit: "2g", cpu_limit: 1.5 },
      labelled: { labels: { gpu: "a100" } },
      "with-gpus": { gpus: 2 },
      "hidden-1": { tenants: ["search"] },
      own: { tenants: ["search", "default"] },
    }),
  },
  "with a small database": { ...common, AIRLOCK_MAX_DATABASE_BYTES: "1000000" },
  "with webhooks": {
    ...common,
    AIRLOCK_WEBHOOK_ENDPOINTS: JSON.stringify({
      failures: {
        url: `${receiverUrl}/failures`,
        events: ["execution.failed"],
        secrets: [receiverSecret],
      },
    }),
    AIRLOCK_WEBHOOK_CALLBACKS: JSON.stringify({
      hosts: ["hooks.example", receiverUrl],
      secrets: [receiverSecret],
    }),
    AIRLOCK_WEBHOOK_PRIVATE_ADDRESSES: "127.0.0.1",
  },
  "with tenants": {
    ...common,
    ...locked,
    AIRLOCK_JOB_TYPES: JSON.stringify({ ml: { priority: 1000 } }),
    AIRLOCK_WEBHOOK_ENDPOINTS: JSON.stringify({
      all: { url: "http://127.0.0.1:1/", secrets: [receiverSecret] },
    }),
  },
  "with sessions": { ...common, AIRLOCK_MAX_SESSIONS_PER_TENANT: String(maxSessions) },
  "in production": { ...common, AIRLOCK_PRODUCTION_MODE: "true" },
  "with short leases": {
    ...common,
    AIRLOCK_LEASE_TTL_S: String(leaseTtlS),
    AIRLOCK_LIVENESS_S: String(leaseTtlS),
    AIRLOCK_JOB_TYPES: JSON.stringify({ ml: {}, science: {}, poison: {} }),
  },
} satisfies Record<string, Record<string, string>>;
export type ServerName = keyof typeof servers;
