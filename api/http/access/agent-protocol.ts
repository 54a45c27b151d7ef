import type { MiddlewareHandler } from "hono";
import {
  commonProtocol,
  ownProtocol,
  protocolHeader,
  protocolMismatch,
  readProtocol,
  writeProtocol,
} from "../../../shared/wire/protocol.ts";
import { AppError } from "../../errors.ts";
import type { AppEnv } from "../context.ts";

/** Agrees with an agent on the version of the protocol, before anything of its request is read. */
export function agreeOnProtocol(): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    const told = readProtocol(c.req.header(protocolHeader));
    const own = { [protocolHeader]: writeProtocol(ownProtocol) };
    if (!told) {
      const detail = `The header ${protocolHeader} must be a version such as ${own[protocolHeader]}.`;
      throw new AppError("invalid_request", detail, {}, own);
    }
    const common = commonProtocol(ownProtocol, told);
    if (!common) {
      throw new AppError("invalid_request", protocolMismatch(ownProtocol, told), {}, own);
    }
    c.set("agentProtocol", writeProtocol(common));
    c.header(protocolHeader, writeProtocol(common));
    await next();
  };
}
