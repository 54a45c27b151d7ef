/** Frames between agent and supervisor; inside/link.py is the other end and lists the types. */
export interface Frame {
  /** One ASCII letter. */
  readonly type: string;
  readonly payload: Buffer;
}

/** The bytes are not what the other end may send. */
export class FrameError extends Error {
  override name = "FrameError";
}

/** Largest payload of a frame, bytes: that of a JSON message. */
export const maxPayloadBytes = 256 * 1024;
/** Payload of a frame of file data, bytes. */
export const dataBytes = 64 * 1024;

const frameHeadBytes = 5;

export function encodeFrame(type: string, payload: Uint8Array = Buffer.alloc(0)): Buffer {
  const frame = Buffer.allocUnsafe(frameHeadBytes + payload.length);
  frame.write(type, "latin1");
  frame.writeUInt32BE(payload.length, 1);
  frame.set(payload, frameHeadBytes);
  return frame;
}

/** A decoder to be fed with chunks cut anywhere; it throws FrameError on a payload over the limit. */
export function frameDecoder(): (chunk: Uint8Array) => Frame[] {
  const decode = recordDecoder(frameHeadBytes, (head) => {
    const length = head.readUInt32BE(1);
    if (length > maxPayloadBytes) throw new FrameError(`a frame of ${length} bytes`);
    return length;
  });
  return (chunk) =>
    decode(chunk).map(({ head, payload }) => ({ type: head.toString("latin1", 0, 1), payload }));
}

export interface EngineOutput {
  readonly stream: "stdout" | "stderr";
  readonly bytes: Buffer;
}

/**
 * Tells apart the two streams of an attached container, as `frameDecoder` cuts frames.
 * Source: Docker Engine API, ContainerAttach, "Stream format".
 */
export function engineDemux(): (chunk: Uint8Array) => EngineOutput[] {
  const decode = recordDecoder(8, (head) => {
    if (head[0]! > 2 || head[1] || head[2] || head[3]) {
      throw new FrameError(`not the head of an engine's stream: ${head.toString("hex")}`);
    }
    const length = head.readUInt32BE(4);
    if (length > maxEngineRecordBytes) throw new FrameError(`an engine record of ${length} bytes`);
    return length;
  });
  return (chunk) =>
    decode(chunk).map(({ head, payload }) => ({
      stream: head[0] === 2 ? "stderr" : "stdout",
      bytes: payload,
    }));
}

/** Engines cut at 32 KiB or less. */
const maxEngineRecordBytes = 1024 * 1024;

/** Cuts a byte stream into records of a head that tells the payload's length, and the payload. */
function recordDecoder(
  headBytes: number,
  lengthOf: (head: Buffer) => number,
): (chunk: Uint8Array) => { head: Buffer; payload: Buffer }[] {
  let pending: Uint8Array[] = [];
  let pendingBytes = 0;
  let wantedBytes = headBytes;
  let head: Buffer | null = null;

  return (chunk) => {
    pending.push(chunk);
    pendingBytes += chunk.length;
    if (pendingBytes < wantedBytes) return [];

    const bytes = Buffer.concat(pending);
    const records = [];
    let at = 0;
    while (bytes.length - at >= wantedBytes) {
      const part = bytes.subarray(at, at + wantedBytes);
      at += wantedBytes;
      if (head === null) {
        head = part;
        wantedBytes = lengthOf(head);
      } else {
        records.push({ head, payload: part });
        head = null;
        wantedBytes = headBytes;
      }
    }
    pending = [bytes.subarray(at)];
    pendingBytes = bytes.length - at;
    return records;
  };
}
