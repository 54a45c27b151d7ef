import { z } from "zod";
import { ImageDigest } from "../build.ts";
import { JobTypeName } from "../job-type.ts";

/** How a built image reaches other hosts: through a registry, through the artifact store, or not at all. */
export const ImageTransport = z.enum(["registry", "store", "none"]);
export type ImageTransport = z.infer<typeof ImageTransport>;

/** Where an agent can get an image that another agent built: answer to `GET /agent/v1/images/{id}`. */
export const ImageSource = z.object({
  /** The image's id: the SHA-256 of its configuration, the same on every host. */
  image: ImageDigest,
  job_type: JobTypeName,
  /** Labels of the agents that need it. */
  labels: z.record(z.string(), z.string()),
  /** Its name in a registry with the digest of its manifest; null if it comes from `…/images/{id}/archive`. */
  registry_ref: z
    .string()
    .regex(/^[^@\s]+@sha256:[0-9a-f]{64}$/)
    .nullable(),
});
export type ImageSource = z.infer<typeof ImageSource>;
