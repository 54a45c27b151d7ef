import type { AuditPage } from "../../../shared/wire/client/audit.ts";
import { joinedHost } from "./hosts.ts";

export const auditPage: AuditPage = {
  items: [
    {
      id: 7,
      at: "2026-11-22T10:00:00.000Z",
      key_id: "0198c39f-2a41-7d6c-8b5e-4f3a2b1c0d9e",
      key_name: "ops",
      tenant: "default",
      action: "host.revoke",
      target: joinedHost.id,
      detail: null,
      correlation_id: "0198c3a0-5b1c-7e2d-9f3e-1a2b3c4d5e6f",
      client_ip: "203.0.113.7",
    },
  ],
  limit: 50,
  has_more: false,
  count: 1,
};
