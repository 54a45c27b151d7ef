import { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";
import { z } from "zod";
import { packagesModules, pipRunner } from "../python/program.ts";
import {
  dataBytes,
  encodeFrame,
  type Frame,
  FrameError,
  type Link,
  parseMessage,
} from "./frames.ts";
import { InstallError, type KeepPiece, type PackageRequest, type PipSource } from "./job.ts";

const Installed = z.object({
  exit_status: z.int().nullable(),
  exit_signal: z.int().nullable(),
  out_of_memory: z.boolean(),
  too_large: z.boolean(),
  output: z.string(),
});

/**
 * Makes the supervisor install packages.
 *
 * @throws InstallError with pip's message; FrameError if the container ends or breaks the protocol.
 */
export async function installPackages(
  link: Link,
  nextFrame: () => Promise<Frame>,
  { requirements, from }: PackageRequest,
): Promise<void> {
  const isPip = "pipEnv" in from;
  const order = {
    modules: packagesModules,
    runner: pipRunner,
    pip_env: isPip ? from.pipEnv : null,
    keep: isPip && from.keep !== null,
    max_bytes: isPip ? from.maxBytes : null,
  };
  tellRequirements(link, requirements);
  link.input.write(encodeFrame("P", Buffer.from(JSON.stringify(order))));
  if (isPip) return throwUnlessInstalled(await serveInstall(link, nextFrame, from), from.maxBytes);
  const installed = serveInstall(link, nextFrame, null);
  installed.catch(() => {});
  await pipeline(from.kept(), link.input, { end: false }).catch((cause: unknown) => {
    link.destroy();
    throw new FrameError("the packages could not be sent", { cause });
  });
  link.input.write(encodeFrame("Z"));
  throwUnlessInstalled(await installed, null);
}

/** Makes the supervisor write /input/_requirements.txt. */
export function tellRequirements({ input }: Link, requirements: readonly string[]): void {
  const lines = requirements.map((line) => `${line}\n`).join("");
  input.write(encodeFrame("L", Buffer.from(lines)));
}

/** Serves pip until it has ended, and passes on the installed files. */
async function serveInstall(
  link: Link,
  nextFrame: () => Promise<Frame>,
  pip: PipSource | null,
): Promise<z.infer<typeof Installed>> {
  const tunnel = pip && openTunnel((frame) => void link.input.write(frame), pip.serve);
  if (pip) sendFiles(link, pip.files);
  let keepPiece: KeepPiece | null = null;
  try {
    for (;;) {
      const frame = await nextFrame();
      if (frame.type === "P") return parseMessage(Installed, frame.payload);
      if (frame.type === "A" || frame.type === "D") {
        if (!pip?.keep) throw new FrameError("packages that nobody asked for");
        keepPiece ??= await pip.keep();
        await keepPiece(encodeFrame(frame.type, frame.payload));
      } else {
        if (!tunnel || keepPiece) throw new FrameError(`a frame ${frame.type} out of turn`);
        tunnel.take(frame);
      }
    }
  } finally {
    tunnel?.close();
  }
}

function sendFiles({ input }: Link, files: PipSource["files"]): void {
  for (const [name, bytes] of Object.entries(files)) {
    const head = { name, executable: false, mtime: 0 };
    input.write(encodeFrame("A", Buffer.from(JSON.stringify(head))));
    for (let at = 0; at < bytes.length; at += dataBytes) {
      input.write(encodeFrame("D", bytes.subarray(at, at + dataBytes)));
    }
  }
  input.write(encodeFrame("Z"));
}

function throwUnlessInstalled(
  { exit_status, exit_signal, out_of_memory, too_large, output }: z.infer<typeof Installed>,
  maxBytes: number | null,
) {
  if (too_large && maxBytes !== null) throw new InstallError(tooLarge(maxBytes));
  if (out_of_memory) throw new InstallError(maxBytes === null ? noMemory : pipNoMemory);
  if (exit_status === 0) return;
  const words = explainPipFailure(output, exit_status ?? -exit_signal!);
  const isFull = words.includes("No space left on device");
  throw new InstallError(isFull && maxBytes === null ? `${words}\n${noMemory}` : words);
}

/** The message for an installation that reached the memory limit. */
export const noMemory =
  "The packages do not fit. They are copied into the job's memory: raise memory_limit of its job type, or build the packages into the job type.";

const pipNoMemory =
  "pip ran out of memory: raise the agent's agent_max_memory, or build the packages into the job type.";

/** The message for packages that a store of so many bytes cannot hold. */
export const tooLarge = (maxBytes: number): string =>
  `The packages need more than the ${Math.floor(maxBytes / 1024 ** 2)} MiB that the agent has for packages on disk: raise its dependency_cache_bytes, or build the packages into the job type.`;

/** The lines of pip's and apt's logs that say why they failed. */
const telling = /^\s*(ERROR: |Could not fetch URL |WARNING: Retrying |E: )/;

/** What programs say of a server whose certificate they do not trust: OpenSSL, Node, GnuTLS. */
const distrust = /certificate[ _]verif\w+[ _]failed|self-signed certificate|local issuer certif/i;

/** Adds to a program's words the agent's key that helps. */
export const withHint = (words: string): string =>
  distrust.test(words)
    ? `${words}\nA certificate is not trusted: set the agent's pip_ca_file.`
    : words;

/** A list of a package's versions, without all but its end. */
const cutVersions = (line: string): string =>
  line.replace(/(versions[^:]*: ).{100,}?([,;] .{1,100})$/, "$1…$2");

/** Why pip, apt or npm failed, from its own messages; `log` is the end of its output. */
export function explainPipFailure(log: string, exitCode: number): string {
  const lines = log.split(/\r?\n/).filter((line) => line.trim() !== "");
  // npm begins with the reason, and ends with advice and the name of a file that is gone.
  const npm = lines.findIndex((line) => line.startsWith("npm error code "));
  if (npm >= 0) {
    const said = lines.slice(npm).filter((line) => /^npm error \S+ +\S/.test(line));
    return withHint(said.slice(0, 3).join("\n").slice(0, 2000));
  }
  const told = lines.filter((line) => telling.test(line));
  const retries = told.filter((line) => line.includes("WARNING: Retrying "));
  const words = told.filter((line) => !retries.includes(line) || line === retries.at(-1));
  // For an exception in pip itself, or another program, the last line is the most useful.
  if (words.length === 0 || words.some((line) => line.includes("ERROR: Exception:"))) {
    words.push(...lines.slice(-1));
  }
  const said = words.slice(-6).map(cutVersions).join("\n").slice(-2000);
  return withHint(said) || `It ended with exit code ${exitCode}.`;
}

/** Bytes of a connection that may be sent but not yet passed on, in each direction. */
const windowBytes = 256 * 1024;
/** More than the other end allows, because it forgets a connection sooner. */
const maxConnections = 64;
/** Bytes in all, both directions. */
const maxBytes = 8 * 1024 ** 3;

/**
 * The agent's end of the tunnel out of a sandbox; python/packages.py is the other end and describes
 * the protocol. `serve` gets each opened connection and closes it; the end of the tunnel closes it too.
 */
export function openTunnel(send: (frame: Buffer) => void, serve: (connection: Duplex) => void) {
  const connections = new Map<number, ReturnType<typeof createConnection>>();
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
    /** @throws FrameError on a frame that does not belong. */
    take({ type, payload }: Frame): void {
      if (payload.length < 4) throw new FrameError(`a frame ${type} without a connection`);
      const number = payload.readUInt32BE(0);
      if (type === "o") return open(number);
      if (number > opened) throw new FrameError(`connection ${number} was never opened`);
      connections.get(number)?.take(type, payload.subarray(4));
      if (bytes > maxBytes) throw new FrameError("too many bytes over the tunnel");
    },
    /** Ends every connection. */
    close(): void {
      for (const { stream } of connections.values()) stream.destroy();
    },
  };
}

function createConnection(
  number: number,
  send: (frame: Buffer) => void,
  count: (bytes: number) => void,
) {
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
