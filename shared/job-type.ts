import { z } from "zod";
import { parseBytes } from "./bytes.ts";

export const JobTypeName = z
  .string()
  .regex(/^[a-z0-9][a-z0-9._-]{0,62}$/, "must be lower-case letters, digits, '.', '_' or '-'");

export const NetworkMode = z.enum(["none", "bridge"]);
export type NetworkMode = z.infer<typeof NetworkMode>;

const envName = z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "must be a shell variable name");

/** Memory as the engine writes it: a number with the unit b, k, m or g; at least 32m. */
export const MemorySize = z
  .string()
  .regex(/^[1-9][0-9]*[bkmg]?$/i, {
    error: 'must be a number with a unit, such as "512m"',
    abort: true,
  })
  .refine((text) => parseBytes(text) >= 32 * 1024 * 1024, "must be at least 32m");

/** One `[job_types.<name>]` table of airlock.toml. */
export const JobTypeDefinition = z.strictObject({
  base_image: z.string().min(1).optional(),
  python_version: z
    .string()
    .regex(/^3\.[0-9]+(\.[0-9]+)?$/, 'must look like "3.13"')
    .optional(),
  requirements: z.array(z.string().min(1)).default([]),
  memory_limit: MemorySize.default("512m"),
  cpu_limit: z.number().min(0.01).max(1024).default(1),
  timeout: z.int().min(1).optional(),
  network: NetworkMode.default("none"),
  preload: z.array(z.string().regex(/^[A-Za-z_][\w.]*$/, "must be a module name")).default([]),
  labels: z.record(z.string(), z.string()).default({}),
  gpus: z.int().min(0).default(0),
  env: z.record(envName, z.string()).default({}),
});
export type JobTypeDefinition = z.infer<typeof JobTypeDefinition>;

/** A job type with every default filled in: what an agent needs to make its containers. */
export const JobType = JobTypeDefinition.extend({
  name: JobTypeName,
  base_image: z.string(),
  timeout: z.int(),
});
export type JobType = z.infer<typeof JobType>;
