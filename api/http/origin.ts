import type { Context } from "hono";
import type { Deps } from "../deps.ts";
import type { AppEnv } from "./context.ts";

/** Origin of a request, for its record. */
export function originOf({ clientAddress }: Deps, c: Context) {
  const { correlationId, traceparent, apiKeyHash } = c.var as AppEnv["Variables"];
  const keyId = apiKeyHash?.slice(0, 16);
  return { correlationId, traceparent, clientIp: clientAddress(c), keyId };
}
