import type { BuildLogChunk } from "../shared/lease.ts";
import { limits } from "../shared/limits.ts";
import type { Clock } from "./clock.ts";

/** The log of a build on its way to the API, a piece each second; what is too much is left out. */
export type BuildLog = {
  readonly add: (bytes: Uint8Array) => void;
  /** Sends what is left. */
  readonly close: () => Promise<void>;
};

const EVERY_MS = 1000;
const CHUNK_MAX_BYTES = 256 * 1024;
/** What is kept of the end, where errors are told. */
const END_BYTES = 64 * 1024;
const HEAD_BYTES = limits.buildLogMaxBytes - END_BYTES - 100;

export function createBuildLog(
  clock: Clock,
  send: (chunk: BuildLogChunk) => Promise<void>,
): BuildLog {
  const closing = new AbortController();
  let waiting = Buffer.alloc(0);
  let end = Buffer.alloc(0);
  let offset = 0;
  let leftOut = 0;

  function add(bytes: Uint8Array): void {
    const room = Math.max(0, HEAD_BYTES - offset - waiting.length);
    waiting = Buffer.concat([waiting, bytes.subarray(0, room)]);
    const rest = Buffer.concat([end, bytes.subarray(room)]);
    end = rest.subarray(-END_BYTES);
    leftOut += rest.length - end.length;
  }

  async function flush(): Promise<void> {
    while (waiting.length > 0) {
      const chunk = waiting.subarray(0, CHUNK_MAX_BYTES);
      waiting = waiting.subarray(chunk.length);
      const at = offset;
      offset += chunk.length;
      await send({ offset: at, data_base64: chunk.toString("base64") });
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
    const marker = leftOut > 0 ? `\n… ${leftOut} bytes left out …\n` : "";
    waiting = Buffer.concat([waiting, Buffer.from(marker), end]);
    await flush();
  }

  return { add, close };
}
