import { z } from "zod";
import { JobType } from "../job-type.ts";

/** A job type as agents receive it. */
export const LeasedJobType = z.object(
  JobType.omit({ priority: true, languages: true, tenants: true }).shape,
);
export type LeasedJobType = z.infer<typeof LeasedJobType>;
