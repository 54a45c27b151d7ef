import { atMost } from "./json-object.ts";
import { z } from "zod";
import { limits } from "./limits.ts";

/** A MIME type without parameters, or with a few. */
const MimeType = z.string().regex(/^[\w.+-]{1,64}\/[\w.+;= -]{1,64}$/);
/** Forms of one value by MIME type. */
export const MimeBundle = atMost(32, z.record(MimeType, z.string()));

export const ResultItem = z
  .object({
    number: z.int().min(1).max(limits.runItemsMax).meta({
      description: "Results and calls of `tools` are numbered together, in their order.",
    }),
    main: z.boolean().meta({ description: "It is the value of the code's last expression." }),
    data: MimeBundle.meta({
      description:
        "Forms of the value by MIME type, as text; pictures and other bytes in base64. `text/plain` is its repr.",
      example: { "text/plain": "42" },
    }),
    stdout_at: z.int().min(0).meta({ description: "Bytes of stdout that come before it." }),
    stderr_at: z.int().min(0),
  })
  .meta({ id: "ResultItem", description: "A value that the code showed." });
export type ResultItem = z.infer<typeof ResultItem>;

/** Fields of records; only of jobs that asked for results. */
export const results = {
  results: z.array(ResultItem).optional().meta({
    description:
      "With `results: true` in the request, what the code showed: values passed to `display`, figures, and the value of its last expression. Left out otherwise.",
  }),
  results_truncated: z.boolean().optional().meta({
    description: "true if something was left out of `results`; otherwise the field is left out.",
  }),
};
