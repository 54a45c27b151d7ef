import { z } from "zod";

/** The answer of a probe that passes. A probe that fails answers with a problem. */
export const Probe = z.object({ status: z.literal("ok") }).meta({ id: "Probe" });
export type Probe = z.infer<typeof Probe>;
