import type { Context } from "hono";
import { createMiddleware } from "hono/factory";
import { artifactHeaders } from "../../../shared/wire/agent/lease.ts";
import type { Announced, Hashed } from "../../deps.ts";
import { AppError } from "../../errors.ts";

/** Refuses an upload as `curl -F` and browsers' forms send it: the stored file would be the whole form. */
export const refuseForm = createMiddleware(async (c, next) => {
  if (/^multipart\/form-data\b/i.test(c.req.header("Content-Type") ?? "")) {
    throw new AppError(
      "invalid_request",
      "Send the file itself as the body and its name as ?name=, not a form: curl --data-binary @FILE '…/files?name=FILE'.",
    );
  }
  await next();
});

const isSha256 = (text: string) => /^[0-9a-f]{64}$/.test(text);

/**
 * Reads size and, if it is announced, SHA-256 of a file that a client uploads.
 *
 * @throws AppError 411 without a size; 400 when the hash is malformed.
 */
export function readFileHeaders(c: Context): Announced {
  const size = c.req.header(artifactHeaders.size);
  const sha256 = c.req.header(artifactHeaders.sha256)?.toLowerCase();
  if (size === undefined) {
    const detail = "Send the file's size as Content-Length.";
    throw new AppError("length_required", detail, {}, { Connection: "close" });
  }
  if (sha256 !== undefined && !isSha256(sha256)) {
    throw new AppError("invalid_request", "X-Airlock-SHA256 must be 64 hex digits.");
  }
  return { sizeBytes: Number(size), sha256 };
}

/** Reads size and SHA-256 from the headers of an upload. @throws AppError when one is missing or malformed. */
export function readUploadHeaders(c: Context): Hashed {
  const sizeBytes = Number(c.req.header(artifactHeaders.size));
  const sha256 = c.req.header(artifactHeaders.sha256) ?? "";
  if (Number.isSafeInteger(sizeBytes) && isSha256(sha256)) {
    return { sizeBytes, sha256 };
  }
  throw new AppError(
    "invalid_request",
    `Send ${artifactHeaders.size} and ${artifactHeaders.sha256} (64 hex digits).`,
  );
}
