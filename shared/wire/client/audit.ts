import { z } from "zod";
import { cursorPageOf } from "../page.ts";
import { orNull } from "../../or-null.ts";
import { JsonObjectSchema } from "../json-object.ts";
import { auditActions } from "./audit-actions.ts";
import { Timestamp } from "../timestamp.ts";
import { TenantName } from "../tenant.ts";

export const AuditAction = z.enum(auditActions).meta({ id: "AuditAction" });
export type AuditAction = z.infer<typeof AuditAction>;

/** A change that somebody made. */
export const AuditEntry = z
  .object({
    id: z.int(),
    at: Timestamp,
    key_id: z.string().nullable().meta({
      description: "The key of the request; null if a command did it, or if keys are not required.",
    }),
    key_name: z.string().meta({ description: "`shell` if a command did it." }),
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
