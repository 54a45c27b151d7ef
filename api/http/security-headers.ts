import { createMiddleware } from "hono/factory";

/** Response headers of interface-spec.md "Authentication", 8. */
export const securityHeaders = createMiddleware(async (c, next) => {
  await next();
  c.res.headers.set("X-Content-Type-Options", "nosniff");
  c.res.headers.set("X-Frame-Options", "DENY");
});
