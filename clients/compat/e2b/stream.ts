const keepAliveMs = 10_000;

/**
 * An answer whose headers go at once. The next part is made when the client has taken the one before it, so that a slow
 * client holds no more than that one.
 *
 * @param keepAlive A part that clients ignore, for times without any.
 * @param hangUp Called when the client goes.
 */
export function streamed(
  contentType: string,
  keepAlive: Uint8Array,
  parts: AsyncGenerator<Uint8Array, void>,
  hangUp: () => void,
): Response {
  let next: Promise<IteratorResult<Uint8Array, void>> | undefined;
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        next ??= parts.next();
        const step = await within(keepAliveMs, next);
        if (step === undefined) return controller.enqueue(keepAlive);
        next = undefined;
        if (step.done) controller.close();
        else controller.enqueue(step.value);
      },
      cancel: hangUp,
    },
    { highWaterMark: 0 },
  );
  const headers = {
    "Content-Type": contentType,
    "Cache-Control": "private, no-store, no-transform",
    "X-Accel-Buffering": "no",
  };
  return new Response(body, { headers });
}

/** Undefined if it takes longer. */
async function within<T>(ms: number, promise: Promise<T>): Promise<T | undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
