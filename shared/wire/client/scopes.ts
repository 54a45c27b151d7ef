/** What a key may do; api/http/access/scopes.ts lists the routes of each. Without zod, as audit-actions.ts. */
export const scopes = ["run", "read", "build", "monitor", "agents", "admin"] as const;
