import { z } from "zod";

/** The answer of a probe that finds all well; anything else is a refusal. */
export const Probe = z.object({ status: z.literal("ok") }).meta({ id: "Probe" });
export type Probe = z.infer<typeof Probe>;
