import type { Context } from "hono";
import type { RouteDeps } from "../deps.ts";
import type { AppEnv } from "./context.ts";

/** Origin of a request, for its record. */
export function originOf({ clientAddress }: RouteDeps, c: Context) {
  const { correlationId, traceparent, apiKeyHash } = c.var as AppEnv["Variables"];
  const keyId = apiKeyHash?.slice(0, 16);
  return { correlationId, traceparent, clientIp: clientAddress(c), keyId };
}
