import { createMiddleware } from "hono/factory";

export const securityHeaderFields = {
  "X-Content-Type-Options": "nosniff",
  "X-Frame-Options": "DENY",
} as const;

/** Headers of every response: docs/contract.md 7.8. */
export const securityHeaders = createMiddleware(async (c, next) => {
  await next();
  for (const [name, value] of Object.entries(securityHeaderFields)) c.res.headers.set(name, value);
});
