import type { Context } from "hono";
import { writeJson, writeJsonInPieces } from "../../shared/json.ts";

/** Answers with a record, whose `output` may be large. */
export async function jsonRecord(
  c: Context,
  record: object,
  headers: Record<string, string> = {},
): Promise<Response> {
  const body = await writeJsonInPieces(record);
  return c.body(body, 200, { ...headers, "Content-Type": "application/json" });
}

/** Items rendered at a time. A page of a thousand items may have gigabytes, so it is never whole in memory. */
const itemsAtOnce = 8;

/**
 * Answers with a page of a list, and reads its items while it sends them.
 *
 * @param found One row more than the limit, if there are more.
 */
export function jsonPage<Row>(
  c: Context,
  found: Row[],
  { limit, offset }: { limit: number; offset: number },
  render: (some: Row[]) => Promise<unknown[]>,
): Response {
  const rows = found.slice(0, limit);
  const page = { limit, offset, has_more: found.length > limit, count: rows.length };
  let next = 0;
  const text = new ReadableStream<string>({
    start(controller) {
      controller.enqueue('{"items":[');
    },
    async pull(controller) {
      const items = await render(rows.slice(next, next + itemsAtOnce));
      const joined = items.map(writeJson).join(",");
      controller.enqueue(next > 0 && joined ? `,${joined}` : joined);
      next += itemsAtOnce;
      if (next < rows.length) return;
      controller.enqueue(`],${JSON.stringify(page).slice(1)}`);
      controller.close();
    },
  });
  // The context adds the headers that the middleware has set; a new Response would not.
  return c.body(text.pipeThrough(new TextEncoderStream()), 200, {
    "Content-Type": "application/json",
  });
}
