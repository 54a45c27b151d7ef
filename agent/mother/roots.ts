import { createHash } from "node:crypto";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { abortable } from "../waiting/abortable.ts";
import type { Engine } from "../container/engine.ts";
import { hostname } from "../sandbox/profile.ts";
import { type MotherProfile, unpackProfile } from "../container/mother-profile.ts";
import { unpackProgram } from "./program.ts";
import { startUnpacker, type VolumeDeps } from "./unpacker.ts";

/** The files of images, unpacked in the volume that the mothers of an agent read. */
export interface Roots {
  /**
   * The name of the folder with the image's files; unpacks them if it is not there. Calls for one
   * image share the work.
   *
   * @throws EngineError; the signal's reason.
   */
  readonly prepare: (imageId: string, signal: AbortSignal) => Promise<string>;
}

export interface RootsDeps extends VolumeDeps {
  /** Names of the folders that something runs on. */
  readonly inUse: () => readonly string[];
}

const callMs = 30_000;
/** How many images' files are kept beyond those in use. */
const spareRoots = 8;

export function createRoots(deps: RootsDeps): Roots {
  /** By name, the most recently used last. */
  const known = new Map<string, Promise<void>>();

  async function prepare(imageId: string, signal: AbortSignal): Promise<string> {
    const name = rootName(imageId, deps.ids);
    const current = known.get(name) ?? unpack(imageId, name);
    known.delete(name);
    known.set(name, current);
    current.catch(() => known.get(name) === current && known.delete(name));
    await abortable(current, signal);
    return name;
  }

  async function unpack(imageId: string, name: string): Promise<void> {
    const recent = [...known.keys()].slice(-spareRoots);
    await unpackRoot(deps, imageId, name, [...new Set([...recent, ...deps.inUse(), name])]);
  }

  return { prepare };
}

const callLimit = (): AbortSignal => AbortSignal.timeout(callMs);

/** The range is in the name: files of another range would be nobody's. */
function rootName(imageId: string, ids: readonly number[]): string {
  return createHash("sha256")
    .update(JSON.stringify([imageId, ids]))
    .digest("hex")
    .slice(0, 32);
}

async function unpackRoot(
  deps: RootsDeps,
  imageId: string,
  name: string,
  keep: readonly string[],
): Promise<void> {
  const { engine, spec, ids } = deps;
  const limit = AbortSignal.timeout(10 * 60_000);
  await using unpacker = await startUnpacker(
    deps,
    unpackProgram({ ids, name, keep, hostname }),
    limit,
  );
  // One line: whether the files are there already. None says that it has ended.
  const first = await unpacker.nextLine();
  if (first?.includes("false")) {
    await fill(engine, unpackProfile(spec, imageId, unpacker.label), unpacker.input, limit);
  }
  await unpacker.end();
}

/** Sends the files of an image; an unpacker that needs none of them has ended. */
async function fill(
  engine: Engine,
  profile: MotherProfile,
  into: NodeJS.WritableStream,
  limit: AbortSignal,
): Promise<void> {
  // It is never started: the engine exports the files of any container.
  const source = await engine.create(profile, callLimit());
  try {
    const files: Readable = await engine.exportFiles(source, limit);
    await pipeline(files, into).catch((error: unknown) => {
      if ((error as { code?: string }).code !== "EPIPE") throw error;
    });
  } finally {
    await engine.remove(source, callLimit()).catch(() => {});
  }
}
