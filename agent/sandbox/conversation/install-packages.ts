import { pipeline } from "node:stream/promises";
import { z } from "zod";
import { dataBytes, encodeFrame, type Frame, FrameError } from "../protocol/frames.ts";
import {
  InstallError,
  type KeepPiece,
  type PackageRequest,
  type PipSource,
} from "../package-request.ts";
import { parseMessage } from "../protocol/messages.ts";
import { explainPipFailure } from "./pip-errors.ts";
import type { Link } from "../protocol/link.ts";
import { packagesModules, pipRunner } from "../../python/program.ts";
import { openTunnel } from "./tunnel.ts";

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
