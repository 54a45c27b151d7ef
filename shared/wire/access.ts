import { z } from "zod";
import { cursorPageOf, JsonObjectSchema, orNull, Timestamp } from "./fields.ts";
import { auditActions, scopes } from "./limits.ts";

/** Who owns records. */
export const TenantName = z
  .string()
  .regex(
    /^[a-z0-9][a-z0-9-]{0,62}$/,
    "must be 1 to 63 lower-case letters, digits and hyphens, and begin with a letter or digit",
  )
  .meta({ example: "search" });

/** Whose a record is. Only answers to requests for all tenants show it. */
export const ShownTenant = TenantName.optional().meta({
  description: "Whose it is, if the request is about all tenants (`X-Airlock-Tenant: *`).",
});

/** Waiting jobs of a tenant that has `max_running` and no `max_queued`: each costs every claim a little. */
export const queuedOfBounded = 1000;

const bound = (least: number, description: string) =>
  z.int().min(least).nullable().default(null).meta({ description });

export const TenantLimits = z
  .strictObject({
    max_queued: bound(0, "Jobs that may wait at once."),
    max_running: bound(
      0,
      `Jobs that may run at once; others wait. With it, \`max_queued\` is at least a default of ${queuedOfBounded}.`,
    ),
    max_stored_bytes: bound(
      0,
      "Bytes of its code, input, metadata, output, artifacts and files together. What its running jobs write counts, but is stored even above the limit.",
    ),
    max_cpu_s_day: bound(0, "Seconds of CPU time of its jobs that end on one day (UTC)."),
    max_requests: bound(1, "Requests of all its keys together in `api_rate_limit_window_seconds`."),
  })
  .meta({ id: "TenantLimits", description: "What a tenant may use; null: no limit." });
export type TenantLimits = z.infer<typeof TenantLimits>;

/** Limits that refuse a submission. With a full `max_running`, jobs wait; `max_requests` is a rate limit. */
const quotas = ["max_queued", "max_stored_bytes", "max_cpu_s_day"] as const;
export const Quota = z
  .enum(quotas)
  .meta({ id: "Quota", description: "The limit of the tenant that is reached." });
export type Quota = z.infer<typeof Quota>;

const TenantUsage = z
  .object({
    queued: z.int().meta({ description: "Jobs that wait." }),
    running: z.int().meta({ description: "Jobs that run." }),
    stored_bytes: z.int().meta({
      description:
        "Bytes of code, input, metadata, output, artifacts and files. Those of a removed artifact or file count until they are gone.",
    }),
    cpu_s_today: z
      .number()
      .meta({ description: "Seconds of CPU time of the jobs that ended today (UTC)." }),
  })
  .meta({ id: "TenantUsage", description: "What a tenant uses now." });
type TenantUsage = z.infer<typeof TenantUsage>;

/** `GET /tenants/{name}`; `GET /usage` has the same for the caller's tenant, without `created_at`. */
export const Tenant = z
  .object({
    name: TenantName,
    created_at: Timestamp,
    limits: TenantLimits,
    usage: TenantUsage,
  })
  .meta({ id: "Tenant" });
export type Tenant = z.infer<typeof Tenant>;

export const TenantList = z.object({ tenants: z.array(Tenant) }).meta({ id: "TenantList" });

/** The answer of `GET /usage`. */
export const Usage = z
  .object({
    tenant: z.string().meta({ example: "default" }),
    usage: TenantUsage,
    limits: TenantLimits,
  })
  .meta({ id: "Usage", description: "What a tenant uses and may use." });
export type Usage = z.infer<typeof Usage>;

/** Messages with which an agent joins and renews its token, and the format of codes and tokens. */

const Sha256 = z.string().regex(/^[0-9a-f]{64}$/, "must be a SHA-256 in 64 hex digits");

export const JoinCode = z
  .string()
  .regex(/^alj_[0-9a-f]{40}$/, "must be a join code: alj_ and 40 hex digits");

/** An agent's own token. Its host generates it and sends it to the API only. */
export const AgentToken = z
  .string()
  .regex(/^ala_[0-9a-f]{64}$/, "must be an agent's token: ala_ and 64 hex digits");

/** Shown on operators' terminals. */
export const HostName = z
  .string()
  .min(1)
  .max(128)
  .refine((name) => !/[\p{C}\p{Zl}\p{Zp}]/u.test(name), "must hold no control characters");

/**
 * `POST /agent/v1/join`, sent without a token. A repeated request gets the same answer, so a host that
 * lost the answer can send it again.
 */
export const JoinRequest = z.object({
  code: JoinCode,
  /** Hash of the token that the agent will present. */
  token_sha256: Sha256,
  /** The host's own name; used if the code gives it none. */
  name: HostName,
});
export type JoinRequest = z.infer<typeof JoinRequest>;

export const JoinReply = z.object({ agent: z.object({ id: z.uuid(), name: HostName }) });
export type JoinReply = z.infer<typeof JoinReply>;

/**
 * `POST /agent/v1/rotate`: the token with this hash replaces the presented token when it is first used.
 * A request that presents the new token itself only confirms it.
 */
export const RotateRequest = z.object({ token_sha256: Sha256 });
export type RotateRequest = z.infer<typeof RotateRequest>;

/** What operators see and send of API keys. */

const dayS = 86_400;

export const Scope = z.enum(scopes).meta({
  id: "Scope",
  description:
    "run: submit, cancel, delete; read: records, output, files; build: build images; monitor: metrics and history; agents: hosts and agents; admin: keys, tenants, audit log, other tenants.",
});
export type Scope = z.infer<typeof Scope>;

/** A managed key, as its holder sends it. */
export const ManagedKey = z
  .string()
  .regex(
    /^(alk_[A-Za-z0-9_-]{43}|e2b_[0-9a-f]{64})$/,
    "must be a key: alk_ and 43 characters of base64url, or e2b_ and 64 hexadecimal digits",
  );

const keyFormats = ["airlock", "e2b"] as const;
/** How a new key looks. */
export const KeyFormat = z.enum(keyFormats).default("airlock").meta({
  description:
    "The form of the key: `airlock` is `alk_…`; `e2b` is `e2b_…`, which E2B's clients before 2.50 need.",
});
export type KeyFormat = z.infer<typeof KeyFormat>;

const Scopes = z
  .array(Scope)
  .min(1)
  .max(Scope.options.length)
  .refine((scopes) => new Set(scopes).size === scopes.length, "must name each scope once");

/** What the audit log shows for callers without a managed key. */
const namesOfOthers = ["api_keys", "operator_keys", "anybody", "shell"];

/** Of a new key. */
export const KeyName = HostName.refine(
  (name) => !namesOfOthers.includes(name),
  `must not be ${namesOfOthers.join(", ")}: in the audit log they stand for callers without a managed key`,
);

export const KeyRequest = z
  .strictObject({
    name: KeyName.meta({ description: "For people: who uses the key.", example: "ci" }),
    tenant: TenantName.optional().meta({
      description:
        "Whose records the key sees; default: the caller's tenant. Is made if it is new.",
      example: "search",
    }),
    scopes: Scopes.meta({
      description: "Only scopes that the caller's own key has.",
      example: ["run", "read"],
    }),
    expires_in_s: z
      .int()
      .min(60)
      .max(3660 * dayS)
      .optional()
      .meta({ description: "Seconds until the key is void; default: never." }),
    format: KeyFormat,
  })
  .meta({ id: "KeyRequest" });

export const ApiKey = z
  .object({
    id: z.uuid().meta({ description: "Stays the same when the key is rotated." }),
    name: HostName,
    tenant: TenantName,
    scopes: z.array(Scope),
    created_at: Timestamp,
    created_by: z.string().nullable().meta({
      description: "`id` of the key that made it; null if `npm run keys` did.",
    }),
    expires_at: Timestamp.nullable(),
    revoked_at: Timestamp.nullable().meta({ description: "Since when the key is void." }),
    last_used_at: Timestamp.nullable().meta({ description: "Is written at most once a minute." }),
    old_valid_until: Timestamp.optional().meta({
      description: "The time until which a former key is valid; of several, the latest.",
    }),
  })
  .meta({ id: "ApiKey", description: "A key that operators made. It never shows the key itself." });
export type ApiKey = z.infer<typeof ApiKey>;

export const OwnKey = z
  .object({
    name: z.string().meta({
      description:
        "As an operator named it; `api_keys` or `operator_keys` for one of the configuration, `anybody` if none is needed.",
      example: "ci",
    }),
    tenant: TenantName,
    scopes: z.array(Scope).meta({ description: "What it may do." }),
  })
  .meta({ id: "OwnKey", description: "The key of a request." });
export type OwnKey = z.infer<typeof OwnKey>;

export const NewApiKey = ApiKey.extend({
  key: ManagedKey.meta({ description: "Is shown once; the service stores only its hash." }),
}).meta({ id: "NewApiKey" });
export type NewApiKey = z.infer<typeof NewApiKey>;

export const KeyRotation = z
  .strictObject({
    old_valid_s: z
      .int()
      .min(0)
      .max(30 * dayS)
      .default(dayS)
      .meta({
        description:
          "Seconds for which the old key stays valid. Older keys stay valid until the times that their own rotations set; with 0, all of them are void at once.",
      }),
    format: KeyFormat,
  })
  .meta({ id: "KeyRotation" });

export const ApiKeyList = z.object({ keys: z.array(ApiKey) }).meta({ id: "ApiKeyList" });

/** What operators see and send of the hosts that run agents. */

export const InvitationRequest = z
  .strictObject({
    name: HostName.optional().meta({
      description: "Name of the host; default: the host says its own.",
      example: "gpu-1",
    }),
    expires_in_s: z
      .int()
      .min(60)
      .max(30 * dayS)
      .default(3600)
      .meta({ description: "Seconds until the code can no longer be used." }),
  })
  .meta({ id: "InvitationRequest" });

export const Invitation = z
  .object({
    code: JoinCode.meta({ description: "Is shown once; the service stores only its hash." }),
    name: HostName.nullable(),
    expires_at: Timestamp,
  })
  .meta({ id: "Invitation", description: "A code with which one host can join, once." });
export type Invitation = z.infer<typeof Invitation>;

export const JoinedHost = z
  .object({
    id: z.uuid(),
    name: HostName,
    joined_at: Timestamp,
    last_used_at: Timestamp.nullable().meta({ description: "When its token was last used." }),
    revoked_at: Timestamp.nullable().meta({ description: "Since when its token is void." }),
    rotation_asked_at: Timestamp.optional().meta({
      description:
        "When an operator asked the host to replace its token. Absent once the new token is in use.",
    }),
    agents: z.array(z.string()).meta({
      description: "Ids of its agents, as in `GET /pool/stats`: one for each start of the program.",
    }),
  })
  .meta({ id: "JoinedHost", description: "A host that has joined with a code." });
export type JoinedHost = z.infer<typeof JoinedHost>;

export const HostList = z.object({ hosts: z.array(JoinedHost) }).meta({ id: "HostList" });

export const AuditAction = z.enum(auditActions).meta({ id: "AuditAction" });
export type AuditAction = z.infer<typeof AuditAction>;

/** A change that somebody made. */
export const AuditEntry = z
  .object({
    id: z.int(),
    at: Timestamp,
    key_id: z.string().nullable().meta({
      description:
        "The key of the request; null if a command or the service did it, or if keys are not required.",
    }),
    key_name: z
      .string()
      .meta({ description: "`shell` if a command did it, `service` if the service did." }),
    tenant: TenantName.meta({ description: "Whose thing was changed." }),
    action: AuditAction,
    target: z.string().meta({ description: "Id or name of what was changed." }),
    detail: orNull(JsonObjectSchema).meta({ description: "Never a key, code or input." }),
    correlation_id: z.string(),
    client_ip: z.string().nullable(),
  })
  .meta({ id: "AuditEntry" });
export type AuditEntry = z.infer<typeof AuditEntry>;

export const AuditPage = cursorPageOf(AuditEntry)
  .extend({
    has_more: z.boolean().meta({
      description: "Whether there are older entries: ask again with `before` = the last `id`.",
    }),
  })
  .meta({ id: "AuditPage" });
export type AuditPage = z.infer<typeof AuditPage>;
