import type { Context } from "hono";
import type { RouteDeps } from "../deps.ts";
import type { Actor } from "../store/audit.ts";
import type { AppEnv } from "./context.ts";

/** Origin of a request, for its record. */
export function originOf({ clientAddress }: RouteDeps, c: Context) {
  const { correlationId, traceparent, caller } = c.var as AppEnv["Variables"];
  const keyId = caller?.keyId ?? undefined;
  return { correlationId, traceparent, clientIp: clientAddress(c), keyId };
}

/** Who makes a change, for the audit log. */
export function actorOf({ clientAddress, now }: RouteDeps, c: Context): Actor {
  const { correlationId, caller } = c.var as AppEnv["Variables"];
  if (!caller) throw new Error("a change needs a caller");
  const { keyId, keyName, tenant } = caller;
  return { keyId, keyName, tenant, correlationId, clientIp: clientAddress(c), at: now() };
}
