import { createReadStream } from "node:fs";
import { once } from "node:events";
import type { Duplex } from "node:stream";
import { z } from "zod";
import { describeError } from "../../shared/log-line.ts";
import { buildProfile, imageChanges, type ImageRequest } from "./build-profile.ts";
import type { Engine } from "../engine/engine.ts";
import { engineDemux, type Frame, frameDecoder } from "../sandbox/protocol/frames.ts";
import { parseMessage } from "../sandbox/protocol/messages.ts";
import { explainPipFailure } from "../sandbox/conversation/pip-errors.ts";
import { openTunnel } from "../sandbox/conversation/tunnel.ts";
import { InstallError } from "../sandbox/package-request.ts";
import { EngineError } from "../sandbox/errors.ts";

export interface MadeImage {
  /** `sha256:…` */
  readonly digest: string;
  readonly pythonVersion: string;
}

const LastWord = z.object({ python_version: z.string().regex(/^3\.[0-9]+\.[0-9]+$/) });

/** Timeout of an engine call without another limit, in ms. */
const callMs = 30_000;
/** Bytes of the end of the log that are searched for pip's errors. */
const tailBytes = 64 * 1024;

/**
 * Makes an image: a container of the base image installs the packages and is committed. Its one
 * layer holds what pip wrote and nothing else: secrets and package files come over the container's
 * stdin and stay in memory and on a volume, and no container or volume is left.
 *
 * @throws InstallError; EngineError; the signal's reason.
 */
export async function makeImage(
  engine: Engine,
  request: ImageRequest,
  onLog: (bytes: Uint8Array) => void,
  signal: AbortSignal,
): Promise<MadeImage> {
  signal.throwIfAborted();
  // The signal does not abort this call: the engine would still create the container, and nobody
  // would know its id.
  const id = await createContainer(engine, request);
  try {
    const pythonVersion = await install(engine, id, request, onLog, signal);
    const [first = "latest", ...others] = request.tags;
    const { repository } = request;
    const digest = await engine.commit(id, repository, first, imageChanges(request), signal);
    for (const tag of others) await engine.tag(digest, repository, tag, signal);
    return { digest, pythonVersion };
  } finally {
    // If the removal fails, the reaper removes the container later.
    await engine.remove(id, AbortSignal.timeout(callMs)).catch(() => {});
  }
}

/** Engines that cannot limit a container's files: most can only on XFS with project quotas. */
const withoutDiskBound = new WeakSet<Engine>();

async function createContainer(engine: Engine, request: ImageRequest): Promise<string> {
  const boundsDisk = !withoutDiskBound.has(engine);
  try {
    const profile = buildProfile(request, { boundsDisk });
    return await engine.create(profile, AbortSignal.timeout(callMs));
  } catch (error) {
    const isRefused = /storage.?opt|quota|backing.?fs/i.test(describeError(error));
    if (!boundsDisk || !isRefused) throw error;
    withoutDiskBound.add(engine);
    return createContainer(engine, request);
  }
}

/** Runs pip in the container, and returns the version of its Python. */
async function install(
  engine: Engine,
  id: string,
  request: ImageRequest,
  onLog: (bytes: Uint8Array) => void,
  signal: AbortSignal,
): Promise<string> {
  const stream = await engine.attach(id, signal);
  stream.on("error", () => {});
  const giveUp = (): void => void stream.destroy();
  signal.addEventListener("abort", giveUp);
  try {
    await engine.start(id, signal);
    // A container that ends early closes the stream; its exit code says why.
    void send(stream, request).catch(giveUp);
    const { lastWord, log } = await serveInstall(stream, request.serve, onLog);
    signal.throwIfAborted();
    await engine.wait(id, signal);
    const { exitCode, outOfMemory } = await engine.inspect(id, signal);
    if (outOfMemory) throw new InstallError("The build ran out of memory.");
    if (exitCode !== 0) throw new InstallError(explainPipFailure(log, exitCode));
    return parseLastWord(lastWord);
  } finally {
    signal.removeEventListener("abort", giveUp);
    stream.destroy();
  }
}

async function send(stream: Duplex, { requirements, pipEnv, files }: ImageRequest): Promise<void> {
  const orders = {
    requirements,
    pip_env: pipEnv,
    files: files.map(({ name, sizeBytes }) => ({ name, size: sizeBytes })),
  };
  stream.write(`${JSON.stringify(orders)}\n`);
  for (const { path, sizeBytes } of files) {
    if (sizeBytes === 0) continue;
    for await (const chunk of createReadStream(path, { end: sizeBytes - 1 })) {
      if (!stream.write(chunk)) await once(stream, "drain");
    }
  }
}

/** Serves pip until the container ends; returns its last frame and the end of its log. */
async function serveInstall(
  stream: Duplex,
  serve: ImageRequest["serve"],
  onLog: (bytes: Uint8Array) => void,
): Promise<{ lastWord: Frame | null; log: string }> {
  const demux = engineDemux();
  const decode = frameDecoder();
  const tunnel = openTunnel((frame) => void stream.write(frame), serve);
  let lastWord: Frame | null = null;
  let tail = Buffer.alloc(0);
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      for (const { stream: name, bytes } of demux(chunk)) {
        if (name === "stdout") {
          for (const frame of decode(bytes)) {
            if (frame.type === "P") lastWord = frame;
            else tunnel.take(frame);
          }
        } else {
          onLog(bytes);
          tail = Buffer.concat([tail, bytes]).subarray(-tailBytes);
        }
      }
    }
  } catch {
    // A broken stream or wrong frames end the build's stream; the exit code of the container
    // decides.
    stream.destroy();
  } finally {
    tunnel.close();
  }
  return { lastWord, log: tail.toString("utf8") };
}

function parseLastWord(frame: Frame | null): string {
  if (frame === null) throw new EngineError("other", "a build ended without its last word");
  try {
    return parseMessage(LastWord, frame.payload).python_version;
  } catch (cause) {
    throw new EngineError("other", "a build ended with a wrong last word", { cause });
  }
}
