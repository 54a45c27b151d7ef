import { ConnectionError, NoAnswerError } from "./errors.ts";

/**
 * The lines of a body. A last line without its end is not whole, and left out.
 *
 * @param silenceMs How long nothing may come before the connection counts as broken.
 * @throws ConnectionError if the connection breaks.
 */
export async function* readLines(
  body: ReadableStream<Uint8Array>,
  silenceMs: number,
): AsyncGenerator<string, void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await readSoon(reader, silenceMs);
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      yield* lines;
    }
  } finally {
    // Also if the caller reads no further; of a broken connection nothing is left to cancel.
    await reader.cancel().catch(() => {});
  }
}

async function readSoon(reader: ReadableStreamDefaultReader<Uint8Array>, silenceMs: number) {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const silence = new Promise<never>((_, reject) => {
    const error = new NoAnswerError(`Nothing came for ${silenceMs} ms.`);
    timer = setTimeout(() => reject(error), silenceMs);
  });
  try {
    return await Promise.race([reader.read(), silence]);
  } catch (error) {
    if (error instanceof ConnectionError) throw error;
    throw new ConnectionError("The connection broke.", { cause: error });
  } finally {
    clearTimeout(timer);
  }
}
