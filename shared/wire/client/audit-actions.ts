/** What the audit log tells of. Without zod, so that the console and the command line can have it. */
export const auditActions = [
  "key.create",
  "key.rotate",
  "key.revoke",
  "tenant.limits",
  "host.invite",
  "host.revoke",
  "host.rotate",
  "agent.drain",
  "agent.resume",
  "build.request",
  "execution.delete",
  "session.delete",
  "dlq.delete",
] as const;
