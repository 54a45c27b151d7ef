import { z } from "zod";
import { ImageDigest } from "./build.ts";
import { JobTypeName } from "./job-type.ts";

/** How a built image gets to other hosts: by a registry, by the artifact store, or not at all. */
export const ImageTransport = z.enum(["registry", "store", "none"]);
export type ImageTransport = z.infer<typeof ImageTransport>;

/** Where an agent gets an image that another one built; answers `GET /agent/v1/images/{id}`. */
export const ImageSource = z.object({
  /** The image's id, which is the SHA-256 of its configuration on every host. */
  image: ImageDigest,
  job_type: JobTypeName,
  /** Labels of the agents that need it. */
  labels: z.record(z.string(), z.string()),
  /** Its name in a registry, by the digest of its manifest; null: `…/images/{id}/archive` has it. */
  registry_ref: z
    .string()
    .regex(/^[^@\s]+@sha256:[0-9a-f]{64}$/)
    .nullable(),
});
export type ImageSource = z.infer<typeof ImageSource>;
