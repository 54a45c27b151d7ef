import type { Context } from "hono";
import { artifactHeaders } from "../../shared/wire/lease.ts";
import type { Announced } from "../deps.ts";
import { AppError } from "../errors.ts";

/** Reads size and SHA-256 from the headers of an upload. @throws AppError when one is missing or malformed. */
export function readUploadHeaders(c: Context): Announced {
  const sizeBytes = Number(c.req.header(artifactHeaders.size));
  const sha256 = c.req.header(artifactHeaders.sha256) ?? "";
  if (Number.isSafeInteger(sizeBytes) && /^[0-9a-f]{64}$/.test(sha256)) {
    return { sizeBytes, sha256 };
  }
  throw new AppError(
    "invalid_request",
    `Send ${artifactHeaders.size} and ${artifactHeaders.sha256} (64 hex digits).`,
  );
}
