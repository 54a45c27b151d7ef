import { Agent } from "undici";
import type { ApiService } from "../api/service.ts";
import { watch } from "./watch.ts";

/** Clients that follow jobs, each by a connection of its own. */
export type Watchers = AsyncDisposable & {
  /** How many characters of output every client has received. */
  readonly least: () => number;
  /** Resolves when every client has received this many. */
  readonly all: (characters: number) => Promise<void>;
};

/** Opens a stream for each of the jobs. Resolves when each client knows the state of its job. */
export async function startWatchers(api: ApiService, jobIds: readonly string[]): Promise<Watchers> {
  const dispatcher = new Agent({ pipelining: 0 });
  const hangUp = new AbortController();
  const received = jobIds.map(() => 0);
  let heard = Promise.withResolvers<void>();
  const least = (): number => received.reduce((a, b) => Math.min(a, b));

  async function follow(jobId: string, n: number, begun: () => void): Promise<void> {
    const { url, headers } = api;
    for await (const event of watch(url, jobId, { dispatcher, headers, signal: hangUp.signal })) {
      if (event.event === "status") begun();
      if (event.event !== "stdout") continue;
      received[n]! += event.data.text.length;
      heard.resolve();
    }
    throw new Error(`the stream of job ${jobId} ended`);
  }
  const begun = jobIds.map((jobId, n) => {
    const first = Promise.withResolvers<void>();
    follow(jobId, n, first.resolve).catch((error: unknown) => {
      first.reject(error);
      heard.reject(error);
    });
    return first.promise;
  });
  await Promise.all(begun);

  return {
    least,
    all: async (characters) => {
      while (least() < characters) {
        heard = Promise.withResolvers();
        await heard.promise;
      }
    },
    [Symbol.asyncDispose]: async () => {
      heard.promise.catch(() => {});
      hangUp.abort();
      await dispatcher.destroy();
    },
  };
}
