import { Duplex } from "node:stream";
import { dataBytes, encodeFrame, type Frame, FrameError } from "../protocol/frames.ts";

/**
 * The agent's end of the tunnel out of a sandbox; python/packages.py is the other end and describes
 * the protocol.
 */
export interface Tunnel {
  /** @throws FrameError on a frame that does not belong. */
  take(frame: Frame): void;
  /** Ends every connection. */
  close(): void;
}

/** Bytes of a connection that may be sent but not yet passed on, in each direction. */
const windowBytes = 256 * 1024;
/** More than the other end allows, because it forgets a connection sooner. */
const maxConnections = 64;
/** Bytes in all, both directions. */
const maxBytes = 8 * 1024 ** 3;

/** `serve` gets each opened connection and closes it; the end of the tunnel closes it too. */
export function openTunnel(
  send: (frame: Buffer) => void,
  serve: (connection: Duplex) => void,
): Tunnel {
  const connections = new Map<number, Connection>();
  let opened = 0;
  let bytes = 0;

  function open(number: number): void {
    if (number !== opened + 1) throw new FrameError(`connection ${number} out of turn`);
    if (connections.size >= maxConnections) throw new FrameError("too many connections");
    opened = number;
    const connection = createConnection(number, send, (count) => (bytes += count));
    connections.set(number, connection);
    connection.stream.on("close", () => connections.delete(number));
    serve(connection.stream);
  }

  return {
    take({ type, payload }) {
      if (payload.length < 4) throw new FrameError(`a frame ${type} without a connection`);
      const number = payload.readUInt32BE(0);
      if (type === "o") return open(number);
      if (number > opened) throw new FrameError(`connection ${number} was never opened`);
      connections.get(number)?.take(type, payload.subarray(4));
      if (bytes > maxBytes) throw new FrameError("too many bytes over the tunnel");
    },
    close() {
      for (const { stream } of connections.values()) stream.destroy();
    },
  };
}

interface Connection {
  readonly stream: Duplex;
  take(type: string, data: Buffer): void;
}

function createConnection(
  number: number,
  send: (frame: Buffer) => void,
  count: (bytes: number) => void,
): Connection {
  const head = Buffer.alloc(4);
  head.writeUInt32BE(number);
  let credit = windowBytes;
  let owed = 0;
  let isOver = false;
  /** Bytes that are sent once the other side has passed on more. */
  let waiting: { bytes: Buffer; done: () => void } | null = null;

  const say = (type: string, data: Buffer = Buffer.alloc(0)): void =>
    send(encodeFrame(type, Buffer.concat([head, data])));

  function sendOn(): void {
    while (waiting && credit > 0) {
      const piece = waiting.bytes.subarray(0, Math.min(credit, dataBytes));
      credit -= piece.length;
      count(piece.length);
      say("d", piece);
      const rest = waiting.bytes.subarray(piece.length);
      if (rest.length > 0) {
        waiting.bytes = rest;
        continue;
      }
      const { done } = waiting;
      waiting = null;
      done();
    }
  }

  const stream = new Duplex({
    read() {
      if (owed === 0) return;
      const passedOn = Buffer.alloc(4);
      passedOn.writeUInt32BE(owed);
      owed = 0;
      say("w", passedOn);
    },
    write(bytes: Buffer, _encoding, done) {
      waiting = { bytes, done };
      sendOn();
    },
    final(done) {
      say("e");
      done();
    },
    destroy(_error, done) {
      if (!isOver) say("x");
      done(null);
    },
  });
  stream.on("error", () => {});

  function take(type: string, data: Buffer): void {
    switch (type) {
      case "d":
        owed += data.length;
        count(data.length);
        if (owed > windowBytes) throw new FrameError("over its window");
        if (data.length > 0) stream.push(data);
        return;
      case "w":
        credit += data.length === 4 ? data.readUInt32BE(0) : 0;
        if (credit > windowBytes) throw new FrameError("a window beyond its size");
        return sendOn();
      case "e":
        stream.push(null);
        return;
      case "x":
        isOver = true;
        stream.destroy();
        return;
      default:
        throw new FrameError(`a frame ${type} is none of a tunnel`);
    }
  }
  return { stream, take };
}
