import { z } from "zod";

/** Keys of the API about sessions. */
export const sessionSettings = {
  max_sessions_per_tenant: z
    .int()
    .min(0)
    .default(100)
    .describe("Sessions that each tenant can have at once; 0: none."),
  max_session_lifetime: z
    .int()
    .min(1)
    .max(604_800)
    .default(86_400)
    .describe("Longest `lifetime` that a request may ask for, in seconds."),
};
