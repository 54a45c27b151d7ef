import { z } from "zod";
import { ExecutionError } from "./errors.ts";
import { orNull } from "../or-null.ts";
import { Timestamp } from "./timestamp.ts";

/** SHA-256 of an image as its engine names it. */
export const ImageDigest = z.string().regex(/^sha256:[0-9a-f]{64}$/);

/**
 * A version that a build may be tagged with: a semantic version (semver.org 2.0.0) after a "v".
 * An image's tag cannot contain "+", so build metadata are refused.
 */
export const VersionTag = z
  .string()
  .max(128)
  .regex(
    /^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?$/,
    'must be a semantic version such as "v1.2.3" or "v1.2.3-rc.1", without build metadata',
  );

const digest = ImageDigest.meta({ example: `sha256:${"4e".repeat(32)}` });
const version = z.string().meta({
  description: "`<job_type>@sha256:<digest>`: the `job_ref` in the records of its jobs.",
  example: `science@sha256:${"4e".repeat(32)}`,
});
const imageRef = z.string().meta({ example: "airlock-science:v1.2.3" });

export const BuildResult = z
  .object({
    status: z.literal("built"),
    job_type: z.string().meta({ example: "science" }),
    version,
    digest,
    image_ref: imageRef,
  })
  .meta({ id: "BuildResult" });
export type BuildResult = z.infer<typeof BuildResult>;

export const buildStatuses = ["queued", "running", "built", "failed"] as const;

/** The last build of a job type, running or ended. */
export const Build = z
  .object({
    status: z.enum(buildStatuses).meta({ id: "BuildStatus" }),
    job_type: z.string().meta({ example: "science" }),
    image_ref: imageRef,
    version: version.nullable(),
    digest: digest.nullable(),
    error: orNull(ExecutionError),
    created_at: Timestamp,
    started_at: Timestamp.nullable(),
    ended_at: Timestamp.nullable(),
    log: z.string().meta({ description: "Output of the build so far; at most 1 MiB." }),
  })
  .meta({ id: "Build" });
export type Build = z.infer<typeof Build>;
