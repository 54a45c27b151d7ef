import type { ErrorHandler } from "hono";
import { HTTPException } from "hono/http-exception";
import { describeError } from "../../shared/log-line.ts";
import { ArtifactOutage } from "../deps.ts";
import { AppError, errorStatus, unavailable, problemOf } from "../errors.ts";
import { isStoreOutage } from "../store/outage.ts";
import type { AppEnv, HeldBytes } from "./context.ts";

/** Turns any thrown error into problem details (RFC 9457). The text of an unknown error is not shown. */
export const onError: ErrorHandler<AppEnv> = (error, c) => {
  const refusal = asRefusal(error);
  // The answer that this one replaces is never read.
  (c.get("answer") as HeldBytes | undefined)?.release();
  const isOutage =
    refusal.code === "unavailable" && (refusal !== error || refusal.cause !== undefined);
  if (isOutage || refusal.code === "internal") {
    c.get("log").error("{method} {path} failed: {reason}", {
      method: c.req.method,
      path: c.req.path,
      reason: describeError(error),
    });
  }
  const problem = problemOf(refusal, c.get("correlationId"));
  return c.body(JSON.stringify(problem), errorStatus[refusal.code], {
    "Content-Type": "application/problem+json",
    ...refusal.headers,
  });
};

function asRefusal(error: Error): AppError {
  if (error instanceof AppError) return error;
  if (error instanceof HTTPException && error.status < 500) {
    return new AppError("invalid_request", error.message);
  }
  if (error instanceof ArtifactOutage) {
    return unavailable("The artifact store is unavailable for the moment; try again.", 5);
  }
  if (isStoreOutage(error)) {
    return unavailable("The database is unavailable for the moment; try again.", 5);
  }
  return new AppError(
    "internal",
    "Something went wrong; the service's log has more under the correlation id.",
  );
}
