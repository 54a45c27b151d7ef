import type { MiddlewareHandler } from "hono";
import {
  protocolHeader,
  protocolMismatch,
  protocolVersion,
} from "../../../shared/wire/agent/protocol.ts";
import { AppError } from "../../errors.ts";
import type { AppEnv } from "../context.ts";

/** Refuses an agent with another version of the protocol before its request is read. */
export function checkProtocol(): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    c.header(protocolHeader, protocolVersion);
    const mismatch = protocolMismatch(c.req.header(protocolHeader), "agent");
    if (mismatch !== undefined) {
      throw new AppError("invalid_request", mismatch, {}, { [protocolHeader]: protocolVersion });
    }
    await next();
  };
}
