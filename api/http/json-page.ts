import type { Context } from "hono";

/** Items rendered at a time. A page of a thousand items may have gigabytes, so it is never whole in memory. */
const itemsAtOnce = 8;

/** Answers with a page of a list, `{"items": [...], ...page}`, and reads the items while it sends them. */
export function jsonPage<Row>(
  c: Context,
  rows: Row[],
  page: Record<string, unknown>,
  render: (some: Row[]) => Promise<unknown[]>,
): Response {
  let next = 0;
  const text = new ReadableStream<string>({
    start(controller) {
      controller.enqueue('{"items":[');
    },
    async pull(controller) {
      const items = await render(rows.slice(next, next + itemsAtOnce));
      const joined = items.map((item) => JSON.stringify(item)).join(",");
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
