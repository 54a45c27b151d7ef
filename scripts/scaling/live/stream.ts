import type { LiveEngine } from "./engine.ts";

/** A client that follows a job, and reads what comes at once. */
export type Stream = {
  /** Resolves when this text has come after the text of the last call. */
  readonly until: (text: string) => Promise<void>;
  readonly close: () => Promise<void>;
};

/** Follows a job. Resolves after its first status event. */
export async function openStream(engine: LiveEngine, jobId: string): Promise<Stream> {
  const { body } = await engine.fetch(`/jobs/${jobId}/events`);
  if (!body) throw new Error("the answer has no events");
  const reader = (body as ReadableStream<Uint8Array>).getReader();
  const decoder = new TextDecoder();
  let [unread, isOver] = ["", false];
  let heard = Promise.withResolvers<void>();
  const read = async (): Promise<void> => {
    for (let step = await reader.read(); !step.done; step = await reader.read()) {
      unread += decoder.decode(step.value, { stream: true });
      heard.resolve();
    }
  };
  const reading = read()
    .catch(() => {})
    .then(() => {
      isOver = true;
      heard.resolve();
    });
  const stream: Stream = {
    until: async (text) => {
      for (;;) {
        const found = unread.indexOf(text);
        if (found >= 0) {
          unread = unread.slice(found + text.length);
          return;
        }
        if (isOver) throw new Error(`the stream ended after ${unread}`);
        heard = Promise.withResolvers();
        await heard.promise;
      }
    },
    close: async () => {
      await reader.cancel();
      await reading;
    },
  };
  await stream.until("event: status");
  return stream;
}
