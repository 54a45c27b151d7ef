import type { Writable } from "node:stream";
import { z } from "zod";
import { MimeBundle } from "../../shared/wire/executions.ts";
import { JsonObjectSchema } from "../../shared/wire/fields.ts";
import type { CallAnswer } from "./job.ts";

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

/** Type and length of the payload, which end every head. */
const frameHeadBytes = 5;

export function encodeFrame(type: string, payload: Uint8Array = Buffer.alloc(0)): Buffer {
  return encode(frameHeadBytes, type, payload);
}

/**
 * Returns a decoder for chunks that may be cut anywhere; it throws FrameError on a payload over the
 * limit. A frame of the type `inPieces` becomes one for each chunk that brings a piece of it.
 */
export function frameDecoder(inPieces = ""): (chunk: Uint8Array) => Frame[] {
  return decoder(frameHeadBytes, maxPayloadBytes, inPieces, (head, payload) => ({
    type: head.toString("latin1", 0, 1),
    payload,
  }));
}

/** A frame of the mother's stream, which has a number before its type; python/mother.py lists the types. */
export interface SwitchFrame extends Frame {
  /** Number of a job or a zygote; 0 for the mother itself. */
  readonly number: number;
}

const switchHeadBytes = 4 + frameHeadBytes;
const maxSwitchPayloadBytes = 1024 * 1024;

export function encodeSwitchFrame(
  number: number,
  type: string,
  payload: Uint8Array = Buffer.alloc(0),
): Buffer {
  const frame = encode(switchHeadBytes, type, payload);
  frame.writeUInt32BE(number, 0);
  return frame;
}

/** As `frameDecoder`, for the mother's stream. Data of jobs comes in pieces. */
export function switchDecoder(): (chunk: Uint8Array) => SwitchFrame[] {
  return decoder(switchHeadBytes, maxSwitchPayloadBytes, "D", (head, payload) => ({
    number: head.readUInt32BE(0),
    type: head.toString("latin1", 4, 5),
    payload,
  }));
}

function encode(headBytes: number, type: string, payload: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(headBytes + payload.length);
  frame.write(type, headBytes - 5, "latin1");
  frame.writeUInt32BE(payload.length, headBytes - 4);
  frame.set(payload, headBytes);
  return frame;
}

function decoder<T>(
  headBytes: number,
  mostBytes: number,
  inPieces: string,
  frameOf: (head: Buffer, payload: Buffer) => T,
): (chunk: Uint8Array) => T[] {
  let pending: Buffer[] = [];
  let pendingBytes = 0;
  let wantedBytes = headBytes;
  /** The head of the frame whose pieces come, and how many bytes of them are missing. */
  let begun: Buffer = Buffer.alloc(0);
  let missingBytes = 0;

  return (chunk) => {
    pending.push(bufferOver(chunk));
    pendingBytes += chunk.length;
    if (pendingBytes < wantedBytes) return [];

    // Only frames that span chunks are copied, and no pieces.
    let bytes = pending.length === 1 ? pending[0]! : Buffer.concat(pending);
    const frames: T[] = [];
    while (bytes.length >= wantedBytes) {
      if (missingBytes > 0) {
        const piece = bytes.subarray(0, missingBytes);
        frames.push(frameOf(begun, piece));
        bytes = bytes.subarray(piece.length);
        missingBytes -= piece.length;
        if (missingBytes === 0) wantedBytes = headBytes;
        continue;
      }
      const head = bytes.subarray(0, headBytes);
      const length = head.readUInt32BE(headBytes - 4);
      if (length > mostBytes) throw new FrameError(`a frame of ${length} bytes`);
      wantedBytes = headBytes + length;
      if (length > 0 && head[headBytes - 5] === inPieces.charCodeAt(0)) {
        begun = head;
        missingBytes = length;
        bytes = bytes.subarray(headBytes);
        wantedBytes = 1;
      } else if (bytes.length >= wantedBytes) {
        frames.push(frameOf(head, bytes.subarray(headBytes, wantedBytes)));
        bytes = bytes.subarray(wantedBytes);
        wantedBytes = headBytes;
      }
    }
    pending = bytes.length > 0 ? [bytes] : [];
    pendingBytes = bytes.length;
    return frames;
  };
}

function bufferOver({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

interface EngineOutput {
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

/** The agent's side of a connection to a supervisor. */
export interface Link {
  readonly input: Writable;
  /**
   * The supervisor's frames; reading slowly slows the supervisor down. Ends when the supervisor
   * ends.
   */
  readonly output: AsyncIterable<Uint8Array>;
  /** The end of the supervisor's stderr, which says why it failed; never the code's output. */
  diagnostics(): string;
  /** Closes both directions; `output` ends or throws. */
  destroy(): void;
}

/** JSON payloads of the supervisor's frames; python/supervisor.py and python/collector.py write them. */
export const Ready = z.object({
  python_version: z.string().regex(/^3\.[0-9]{1,4}\.[0-9]{1,4}$/),
  preload_errors: z.record(z.string(), z.string()),
});
export type Ready = z.infer<typeof Ready>;

export const NotReady = z.object({ message: z.string(), output: z.string() });

/** A bound that no run can reach: 30 years of one CPU. */
const millisecondsMax = 1e12;

/** How the compiler ended. */
export const Compiled = z.object({
  exit_status: z.int().min(0).max(255).nullable(),
  exit_signal: z.int().min(1).max(64).nullable(),
  timed_out: z.boolean(),
  stdout: z.string(),
  stderr: z.string(),
  wall_ms: z.number().min(0).max(millisecondsMax),
});
export type Compiled = z.infer<typeof Compiled>;

export const Exit = z
  .object({
    ending: z.enum(["exited", "timeout", "cancelled", "sockets", "locks", "interpreter_ended"]),
    exit_status: z.int().min(0).max(255).nullable(),
    exit_signal: z.int().min(1).max(64).nullable(),
    out_of_memory: z.boolean(),
    exception: z.object({ mro: z.array(z.string()).min(1), message: z.string() }).nullable(),
    wall_ms: z.number().min(0).max(millisecondsMax),
    cpu_ms: z.number().min(0).max(millisecondsMax),
    max_rss_bytes: z.int().min(0),
    truncated: z.tuple([z.boolean(), z.boolean()]),
    /** Only of a cell. */
    results_truncated: z.boolean().optional(),
  })
  .refine(({ exit_status, exit_signal }) => (exit_status === null) !== (exit_signal === null));
export type Exit = z.infer<typeof Exit>;

/** An item of a cell, as the code may also have made it: it is data, and no message of the protocol. */
export const Item = z.object({
  main: z.boolean(),
  data: MimeBundle.refine((data) => Object.keys(data).length > 0),
});

/** A call, as the code may also have made it. */
export const Call = z.object({ id: z.int().min(1), name: z.string(), arguments: JsonObjectSchema });
export type Call = z.infer<typeof Call>;

export const FileHead = z.object({
  name: z.string(),
  size: z.int().min(0),
  /** The file is /output/result.json, which is read and not stored. */
  result: z.boolean(),
});
export type FileHead = z.infer<typeof FileHead>;

const SkipReason = z.enum([
  "not_a_regular_file",
  "hard_link",
  "unsafe_name",
  "name_too_long",
  "too_deep",
  "too_many_files",
  "too_many_bytes",
  "unreadable",
  "missing",
  "changed",
  "not_searched",
]);

/** A name as collector.py escapes it for logs and messages. */
const ShownName = z.string().regex(/^[ -~]{0,200}$/);

export const OutputSummary = z.object({
  /** Why result.json could not be sent as the result. */
  result_problem: SkipReason.nullable(),
  skipped: z
    .array(
      z.object({ reason: SkipReason, count: z.int().min(1), names: z.array(ShownName).max(10) }),
    )
    .max(SkipReason.options.length),
});
export type OutputSummary = z.infer<typeof OutputSummary>;

/** @throws FrameError if the payload is not JSON of that shape. */
export function parseMessage<T>(schema: z.ZodType<T>, payload: Buffer): T {
  try {
    return schema.parse(JSON.parse(payload.toString("utf8")));
  } catch (cause) {
    throw new FrameError("a message that is not in the protocol", { cause });
  }
}

/** The frames of an answer to a call; python/tools.py reads what they bring. */
export function* answerFrames(id: number, answer: CallAnswer): Generator<Buffer> {
  const given =
    "error" in answer ? `"error":${JSON.stringify(answer.error)}` : `"result":${answer.resultJson}`;
  const text = Buffer.from(`{"id":${id},${given}}`);
  const message = Buffer.concat([Buffer.alloc(4), text]);
  message.writeUInt32BE(text.length);
  const size = dataBytes - 1;
  for (let at = 0; at < message.length; at += size) {
    const isLast = at + size >= message.length;
    const piece = message.subarray(at, at + size);
    yield encodeFrame("Y", Buffer.concat([Buffer.from([isLast ? 0 : 1]), piece]));
  }
}
