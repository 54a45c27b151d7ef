import { AirlockError } from "../typescript/src/transport/errors.ts";
import type { Api } from "./tools/call.ts";

/** Runs work when the queue has room. */
export type Sequence = <T>(work: () => Promise<T>) => Promise<T>;

/** Runs at most `most` pieces of work at the same time; the others wait in order. */
export function createSequence(most: number): Sequence {
  const waiting: (() => void)[] = [];
  let free = most;
  return async (work) => {
    if (free > 0) free--;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = waiting.shift();
      if (next) next();
      else free++;
    }
  };
}

/** The same requests, except that files are read one after the other and have at most `maxBytes` together. */
export function boundDownloads(api: Api, maxBytes: number, inSequence: Sequence): Api {
  let left = maxBytes;
  return async (path, init) => {
    if (!isDownload.test(path)) return api(path, init);
    return inSequence(async () => {
      init?.signal?.throwIfAborted();
      const response = await api(path, init);
      const bytes = Number(response.headers.get("Content-Length"));
      if (bytes > left) {
        await response.body?.cancel();
        const message = `The answers to one HTTP request have at most ${maxBytes} bytes of files together. Read this file with a request of its own.`;
        throw new AirlockError(message);
      }
      left -= bytes;
      return new Response(await response.arrayBuffer(), response);
    });
  };
}

const isDownload = /^\/jobs\/[^/]+\/artifacts\/./;
