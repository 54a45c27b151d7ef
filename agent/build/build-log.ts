import type { BuildLogChunk } from "../../shared/wire/agent/lease.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { Clock } from "../waiting/clock.ts";

/**
 * Sends the log of a build to the API, one piece per second; the excess over the limit is left out.
 */
export type BuildLog = {
  readonly add: (bytes: Uint8Array) => void;
  /** Sends the rest. */
  readonly close: () => Promise<void>;
};

const EVERY_MS = 1000;
const CHUNK_MAX_BYTES = 256 * 1024;
/** How much of the end is kept, because errors are reported there. */
const END_BYTES = 64 * 1024;
const HEAD_BYTES = limits.buildLogMaxBytes - END_BYTES - 100;

export function createBuildLog(
  clock: Clock,
  send: (chunk: BuildLogChunk) => Promise<void>,
): BuildLog {
  const closing = new AbortController();
  let waiting: Uint8Array[] = [];
  let room = HEAD_BYTES;
  let offset = 0;
  let end: Uint8Array[] = [];
  let endBytes = 0;
  let leftOut = 0;

  function add(bytes: Uint8Array): void {
    const head = bytes.subarray(0, room);
    const rest = bytes.subarray(head.length);
    waiting.push(head);
    room -= head.length;
    end.push(rest);
    endBytes += rest.length;
    while (endBytes - (end[0]?.length ?? 0) >= END_BYTES) {
      const dropped = end.shift()?.length ?? 0;
      endBytes -= dropped;
      leftOut += dropped;
    }
  }

  async function flush(): Promise<void> {
    const bytes = Buffer.concat(waiting);
    waiting = [];
    for (let at = 0; at < bytes.length; at += CHUNK_MAX_BYTES) {
      const chunk = bytes.subarray(at, at + CHUNK_MAX_BYTES);
      await send({ offset, data_base64: chunk.toString("base64") });
      offset += chunk.length;
    }
  }

  async function pump(): Promise<void> {
    while (!closing.signal.aborted) {
      await clock.sleep(EVERY_MS, closing.signal).catch(() => {});
      await flush();
    }
  }
  const pumping = pump();
  pumping.catch(() => {});

  async function close(): Promise<void> {
    closing.abort();
    await pumping;
    const last = Buffer.concat(end);
    const kept = last.subarray(-END_BYTES);
    leftOut += last.length - kept.length;
    if (leftOut > 0) waiting.push(Buffer.from(`\n… ${leftOut} bytes left out …\n`));
    waiting.push(kept);
    await flush();
  }

  return { add, close };
}
