/** Frames between agent and supervisor; python/link.py is the other end and lists the types. */
export interface Frame {
  /** One ASCII letter. */
  readonly type: string;
  readonly payload: Buffer;
}

/** The other end broke the protocol. */
export class FrameError extends Error {
  override name = "FrameError";
}

/** Largest payload of a frame, in bytes; JSON messages may be that large. */
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

/**
 * Returns a decoder for chunks that may be cut anywhere; it throws FrameError on a payload over the
 * limit.
 */
export function frameDecoder(): (chunk: Uint8Array) => Frame[] {
  let pending: Buffer[] = [];
  let pendingBytes = 0;
  let wantedBytes = frameHeadBytes;

  return (chunk) => {
    pending.push(bufferOver(chunk));
    pendingBytes += chunk.length;
    if (pendingBytes < wantedBytes) return [];

    // Only frames that span chunks are copied.
    let bytes = pending.length === 1 ? pending[0]! : Buffer.concat(pending);
    const frames: Frame[] = [];
    while (bytes.length >= frameHeadBytes) {
      wantedBytes = frameHeadBytes + payloadLength(bytes);
      if (bytes.length < wantedBytes) break;
      const payload = bytes.subarray(frameHeadBytes, wantedBytes);
      frames.push({ type: bytes.toString("latin1", 0, 1), payload });
      bytes = bytes.subarray(wantedBytes);
      wantedBytes = frameHeadBytes;
    }
    pending = bytes.length > 0 ? [bytes] : [];
    pendingBytes = bytes.length;
    return frames;
  };
}

function payloadLength(head: Buffer): number {
  const length = head.readUInt32BE(1);
  if (length > maxPayloadBytes) throw new FrameError(`a frame of ${length} bytes`);
  return length;
}

function bufferOver({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

export interface EngineOutput {
  readonly stream: "stdout" | "stderr";
  readonly bytes: Buffer;
}

const engineHeadBytes = 8;

/**
 * Separates the two streams of an attached container. Returns a decoder for chunks that may be cut
 * anywhere; it copies nothing and throws FrameError on data that no engine sends. Source: Docker
 * Engine API, ContainerAttach, "Stream format".
 */
export function engineDemux(): (chunk: Uint8Array) => EngineOutput[] {
  let head = Buffer.alloc(0);
  let missingBytes = 0;

  return (chunk) => {
    const output: EngineOutput[] = [];
    let rest = bufferOver(chunk);
    while (rest.length > 0) {
      if (missingBytes > 0) {
        const bytes = rest.subarray(0, missingBytes);
        missingBytes -= bytes.length;
        rest = rest.subarray(bytes.length);
        output.push({ stream: head[0] === 2 ? "stderr" : "stdout", bytes });
      } else {
        const begun = head.length < engineHeadBytes ? head : head.subarray(0, 0);
        const more = rest.subarray(0, engineHeadBytes - begun.length);
        head = Buffer.concat([begun, more]);
        rest = rest.subarray(more.length);
        if (head.length === engineHeadBytes) missingBytes = recordLength(head);
      }
    }
    return output;
  };
}

function recordLength(head: Buffer): number {
  if (head[0]! > 2 || head[1] || head[2] || head[3]) {
    throw new FrameError(`not the head of an engine's stream: ${head.toString("hex")}`);
  }
  const length = head.readUInt32BE(4);
  if (length > maxEngineRecordBytes) throw new FrameError(`an engine record of ${length} bytes`);
  return length;
}

/** Engines cut at 32 KiB or less. */
const maxEngineRecordBytes = 1024 * 1024;
