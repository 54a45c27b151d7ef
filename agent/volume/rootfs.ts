import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { abortable } from "../waiting/abortable.ts";
import { sourceProfile } from "./volume-profile.ts";
import { hostname } from "../sandbox/surroundings.ts";
import { unpackProgram } from "../python/program.ts";
import {
  callLimit,
  nameInVolume,
  startUnpacker,
  type Unpacker,
  type VolumeDeps,
} from "./unpacker.ts";

/** The files of images, unpacked in the volume that mothers read. */
export interface RootfsStore {
  /**
   * The name of the folder with the image's files. Unpacks them if they are missing. Calls for one image
   * share the work.
   *
   * @throws EngineError; the signal's reason.
   */
  readonly prepare: (imageId: string, signal: AbortSignal) => Promise<string>;
  /** Has the next call of `prepare` look for the image's files in the volume. */
  readonly forget: (imageId: string) => void;
  /** Ends what is being unpacked, and removes its containers. */
  readonly close: () => Promise<void>;
}

/** How long to trust that a folder is there. Agents remove folders that no agent has asked for in a day. */
const knownMs = 3600_000;
const unpackMs = 600_000;

export function createRootfsStore(deps: VolumeDeps): RootfsStore {
  const program = (name: string): Buffer => unpackProgram({ ids: deps.ids, name, hostname });
  // The names depend on the range of ids and on the program that unpacks.
  const version = program("").toString("utf8");
  const nameOf = (imageId: string): string => nameInVolume([imageId, version]);
  const known = new Map<string, { readonly done: Promise<void>; readonly sinceMs: number }>();
  const end = new AbortController();

  return {
    forget: (imageId) => void known.delete(nameOf(imageId)),
    async prepare(imageId, signal) {
      end.signal.throwIfAborted();
      const name = nameOf(imageId);
      let current = known.get(name);
      if (!current || performance.now() - current.sinceMs > knownMs) {
        const started = {
          done: unpackRoot(deps, imageId, program(name), end.signal),
          sinceMs: performance.now(),
        };
        started.done.catch(() => known.get(name) === started && known.delete(name));
        known.set(name, (current = started));
      }
      await abortable(current.done, signal);
      return name;
    },
    async close() {
      end.abort(new Error("the agent has stopped"));
      await Promise.allSettled([...known.values()].map(({ done }) => done));
    },
  };
}

async function unpackRoot(
  deps: VolumeDeps,
  imageId: string,
  program: Buffer,
  signal: AbortSignal,
): Promise<void> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(unpackMs)]);
  await using unpacker = await startUnpacker(deps, program, limit);
  // One line: whether the files are there already. No line: the unpacker has ended.
  const first = await unpacker.nextLine();
  const ended = unpacker.end();
  ended.catch(() => {});
  if (first?.includes("false")) await fill(deps, imageId, unpacker, ended, limit);
  await ended;
}

/** Sends the files of an image to the unpacker, until it ends. If the disk is full, it ends before it has read all. */
async function fill(
  { engine, spec }: VolumeDeps,
  imageId: string,
  { label, input }: Unpacker,
  ended: Promise<void>,
  limit: AbortSignal,
): Promise<void> {
  const source = await engine.create(sourceProfile(spec, imageId, label), callLimit());
  const enough = new AbortController();
  ended.catch(() => {}).finally(() => enough.abort());
  const signal = AbortSignal.any([limit, enough.signal]);
  try {
    const files: Readable = await engine.exportFiles(source, limit);
    await pipeline(files, input, { signal }).catch(async (error: unknown) => {
      limit.throwIfAborted();
      // Throws the unpacker's own error, if it failed.
      await ended;
      throw error;
    });
  } finally {
    await engine.remove(source, callLimit()).catch(() => {});
  }
}
