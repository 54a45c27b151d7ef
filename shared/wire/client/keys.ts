import { z } from "zod";
import { HostName } from "../agent/join.ts";
import { scopes } from "./scopes.ts";
import { Timestamp } from "../timestamp.ts";
import { TenantName } from "../tenant.ts";

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

export const keyFormats = ["airlock", "e2b"] as const;
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
