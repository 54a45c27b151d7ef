import type { Context } from "hono";
import { concatBytes } from "../../shared/bytes.ts";
import { writeJsonInPieces } from "../../shared/json.ts";

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
const comma = Uint8Array.of(0x2c);

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
  const utf8 = new TextEncoder();
  let next = 0;
  let isFirst = true;
  const text = new ReadableStream<Uint8Array>({
    start(controller) {
      controller.enqueue(utf8.encode('{"items":['));
    },
    async pull(controller) {
      const items = await render(rows.slice(next, next + itemsAtOnce));
      for (const item of items) {
        const bytes = await writeJsonInPieces(item);
        controller.enqueue(isFirst ? bytes : concatBytes([comma, bytes]));
        isFirst = false;
      }
      next += itemsAtOnce;
      if (next < rows.length) return;
      controller.enqueue(utf8.encode(`],${JSON.stringify(page).slice(1)}`));
      controller.close();
    },
  });
  // The context adds the headers that the middleware has set; a new Response would not.
  return c.body(text, 200, {
    "Content-Type": "application/json",
  });
}
