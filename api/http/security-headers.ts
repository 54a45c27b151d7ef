import { createMiddleware } from "hono/factory";

export const securityHeaderFields = {
  "X-Content-Type-Options": "nosniff",
  "X-Frame-Options": "DENY",
} as const;

/** Answers depend on the key, which caches do not know. Routes whose answers anybody may keep say so themselves. */
const notStored = "private, no-store";

/** Headers of every response: docs/contract.md 7.8. */
export const securityHeaders = createMiddleware(async (c, next) => {
  await next();
  const { headers } = c.res;
  for (const [name, value] of Object.entries(securityHeaderFields)) headers.set(name, value);
  if (!headers.has("Cache-Control")) headers.set("Cache-Control", notStored);
});
