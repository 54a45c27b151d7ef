import { z } from "zod";

/** A page of a list that is read by offset or by cursor. */
export const pageOf = <T extends z.ZodType>(item: T) =>
  z.object({
    items: z.array(item),
    limit: z.int(),
    offset: z.int(),
    has_more: z.boolean(),
    count: z.int().meta({ description: "Items in this response." }),
  });

/** A page of a list that is read by cursor only. */
export const cursorPageOf = <T extends z.ZodType>(item: T) => pageOf(item).omit({ offset: true });
