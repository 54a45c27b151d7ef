import { z } from "zod";
import { key16 } from "./units.ts";

/** Keys of the API about other services' protocols. */
export const compatSettings = {
  compat: z
    .array(z.enum(["sandbox-fusion", "piston", "dify", "librechat", "e2b"]))
    .default([])
    .describe("Protocols of other services to speak, each below /compat/<name>."),
  compat_key: key16
    .optional()
    .describe(
      "The API key of requests that bring none, in protocols that need none (sandbox-fusion, piston, librechat). If the service has keys, such requests are refused without it.",
    ),
  compat_held: z
    .int()
    .min(1)
    .default(512)
    .describe(
      "Requests in other services' protocols that are open at the same time; more are refused.",
    ),
};
