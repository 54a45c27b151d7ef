const keepAliveMs = 10_000;

/**
 * An answer whose headers go at once, and whose parts come from `produce`. It ends with it; a client that hangs up aborts
 * its signal.
 *
 * @param keepAlive A part that clients ignore, for times without any.
 */
export function streamed(
  contentType: string,
  keepAlive: Uint8Array,
  clientSignal: AbortSignal,
  produce: (send: (part: Uint8Array) => void, signal: AbortSignal) => Promise<void>,
): Response {
  const gone = new AbortController();
  const signal = AbortSignal.any([clientSignal, gone.signal]);
  let timer: ReturnType<typeof setInterval> | undefined;
  const body = new ReadableStream<Uint8Array>({
    async start(controller) {
      const send = (part: Uint8Array) => {
        if (!signal.aborted) controller.enqueue(part);
      };
      timer = setInterval(() => send(keepAlive), keepAliveMs);
      void produce(send, signal)
        .catch((error: unknown) => {
          if (!signal.aborted) controller.error(error);
        })
        .finally(() => {
          clearInterval(timer);
          if (!signal.aborted) controller.close();
        });
    },
    cancel() {
      clearInterval(timer);
      gone.abort();
    },
  });
  return new Response(body, { headers: { "Content-Type": contentType } });
}
