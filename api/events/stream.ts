import type { JobEvent } from "../../shared/wire/client/events.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { isStoreOutage } from "../store/outage.ts";
import { contentTypes, encodeEvent, type EventFormat } from "./encode.ts";

type Events = AsyncGenerator<JobEvent | "idle">;

/**
 * Events as the body of an answer. The next event is made when the client has taken the one before it, so
 * that a slow client holds no more than that one. When the client hangs up or a signal aborts, the events
 * are ended; the process stays open until they are.
 */
export function eventStream(
  { waitUntil, log }: Pick<Deps, "waitUntil" | "log">,
  format: EventFormat,
  follow: (signal: AbortSignal) => Events,
  signals: AbortSignal[],
  kind?: "synchronous",
): ReadableStream<Uint8Array> {
  const hungUp = new AbortController();
  const events = follow(hungUp.signal);
  let finish: (() => void) | undefined;
  /** A stream that nobody reads, such as the answer to HEAD, must not keep the process open. */
  const begin = (): void => {
    if (!finish) waitUntil(new Promise<void>((resolve) => (finish = resolve)), kind);
  };
  /** A signal of the process outlives the stream, and would keep it in memory. */
  const finished = (): void => {
    finish?.();
    for (const signal of signals) signal.removeEventListener("abort", hangUp);
  };
  const end = async (): Promise<void> => {
    // A generator that has not started would skip its `finally`.
    if (!finish) await events.next().catch(() => {});
    begin();
    await events.return(undefined).catch(() => {});
    finished();
  };
  const hangUp = (): void => hungUp.abort();
  hungUp.signal.addEventListener("abort", () => void end());
  for (const signal of signals) signal.addEventListener("abort", hangUp);
  // The client may have gone while its job was stored.
  if (signals.some(({ aborted }) => aborted)) hangUp();

  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        begin();
        try {
          const step = await events.next();
          if (step.done !== true) return controller.enqueue(encodeEvent(format, step.value));
        } catch (error) {
          // The client continues from its cursor.
          const isRefused = error instanceof AppError && error.code === "unauthorized";
          const isExpected = isRefused || isStoreOutage(error) || hungUp.signal.aborted;
          if (!isExpected) log.error("events: {error}", { error });
        }
        finished();
        controller.close();
      },
      cancel: hangUp,
    },
    { highWaterMark: 0 },
  );
}

/** Proxies must pass on each event as it comes. */
export function eventHeaders(format: EventFormat): Record<string, string> {
  return {
    "Content-Type": contentTypes[format],
    "Cache-Control": "private, no-store, no-transform",
    "X-Accel-Buffering": "no",
  };
}
