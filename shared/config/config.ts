import { z } from "zod";
import { describeError } from "../log-line.ts";
import { agentSettings } from "./agent.ts";
import { apiSettings, compatSettings, sessionSettings, webhookSettings } from "./api.ts";

/**
 * Every configuration key (docs/contract.md 3.1). A key `k` is read
 * from airlock.toml as `k` and from the environment as `AIRLOCK_<K>`; the environment wins.
 */
export const Config = z
  .strictObject({
    ...apiSettings,
    ...compatSettings,
    ...sessionSettings,
    ...webhookSettings,
    ...agentSettings,
  })
  .refine(isFenceLast, {
    path: ["lease_ttl_s"],
    when: ({ issues }) => issues.length === 0,
    error: ({ input }) => tooShort(input as Times),
  });
export type Config = z.infer<typeof Config>;

type Times = { liveness_s: number; lease_ttl_s: number };

/** A lease must last longer than the time between two renewals, even if one renewal is late. */
function isFenceLast({ liveness_s, lease_ttl_s }: Times): boolean {
  return lease_ttl_s >= liveness_s;
}

function tooShort({ liveness_s, lease_ttl_s }: Times): string {
  return `must be at least liveness_s (${liveness_s}): set it to ${liveness_s} or more, or liveness_s to ${lease_ttl_s} or less`;
}

export class ConfigError extends Error {
  override name = "ConfigError";
}

/**
 * Reads the configuration from a parsed airlock.toml and the environment.
 *
 * @param readText Reads a file that the configuration names; absent where there are no files.
 * @throws ConfigError that names the key, the value and what is allowed.
 */
export function loadConfig(
  file: Record<string, unknown>,
  env: Record<string, string | undefined>,
  readText?: (name: string) => string,
): Config {
  const given = { ...file, ...fromEnv(env) };
  if (readText) readDockerfiles(given["job_types"], readText);
  const parsed = Config.safeParse(given);
  if (parsed.success) return parsed.data;
  throw new ConfigError(parsed.error.issues.map((issue) => describeIssue(issue, given)).join("\n"));
}

/** Puts the text in the place of a `dockerfile` that is one line, the name of a file. */
function readDockerfiles(jobTypes: unknown, readText: (name: string) => string): void {
  for (const [name, type] of Object.entries(jobTypes ?? {}) as [
    string,
    { dockerfile?: unknown },
  ][]) {
    const file = type?.dockerfile;
    if (typeof file !== "string" || file.includes("\n")) continue;
    try {
      type.dockerfile = `${readText(file)}\n`;
    } catch (error) {
      const isMissing = (error as { code?: unknown } | null)?.code === "ENOENT";
      const reason = isMissing
        ? `there is no file "${file}": one line is the name of a file; write commands between three quotes`
        : describeError(error);
      throw new ConfigError(`job type ${name}, dockerfile: ${reason}`);
    }
  }
}

const prefix = "AIRLOCK_";
/** Variables of the command line and the clients, for the same shell. */
const ofClients = new Set(["AIRLOCK_URL", "AIRLOCK_KEY"]);
/** What Kubernetes puts into the environment for a Service whose name begins with `airlock`: one called `airlock` sets PORT. */
const serviceLink =
  /^AIRLOCK_(\w+_)?(SERVICE_HOST=[\da-f.:]+|SERVICE_PORT(_\w+)?=\d+|PORT(_\d+_(TCP|UDP|SCTP))?=(tcp|udp|sctp):\/\/.+|PORT_\d+_(TCP|UDP|SCTP)_(ADDR=[\da-f.:]+|PORT=\d+|PROTO=(tcp|udp|sctp)))$/;

function fromEnv(env: Record<string, string | undefined>): Record<string, unknown> {
  const values: Record<string, unknown> = {};
  for (const [name, text] of Object.entries(env)) {
    if (!name.startsWith(prefix) || ofClients.has(name)) continue;
    if (text === undefined || text === "" || serviceLink.test(`${name}=${text}`)) continue;
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
  "operator_keys",
  "agent_tokens",
  "agent_token",
  "compat_key",
  "database_auth_token",
  "s3_endpoint",
  "s3_secret_access_key",
  "pip_index_url",
  "pip_proxy",
  "npm_registry",
  "image_registry_password",
  // Addresses of receivers may have a token in their path.
  "webhook_endpoints",
]);

/** Keys and tokens, and every value that contains the `env` of a job type or a secret of webhooks. */
function isSecret([key = "", name, field]: string[]): boolean {
  if (key === "webhook_callbacks") return name !== "hosts";
  return secretKeys.has(key) || (key === "job_types" && (field === undefined || field === "env"));
}

function describeIssue(issue: z.core.$ZodIssue, given: Record<string, unknown>): string {
  const path = issue.path.map(String);
  if (path[0] === "job_types" && path[2] === "dockerfile") {
    return `job type ${path[1]}, ${issue.message}`;
  }
  if (issue.code === "unrecognized_keys") {
    const at = path.length ? ` in ${path.join(".")}` : "";
    return `unknown configuration key${at}: ${issue.keys.join(", ")}; docs/configuration.md lists the keys`;
  }
  const shown = isSecret(path) ? "(secret)" : JSON.stringify(valueAt(given, issue.path));
  const name = path.join(".");
  return `${shown === undefined ? name : `${name} = ${shown}`}: ${issue.message}`;
}

function valueAt(value: unknown, path: PropertyKey[]): unknown {
  let at = value;
  for (const step of path) at = (at as Record<PropertyKey, unknown> | undefined)?.[step];
  return at;
}
