import { createHash, randomUUID } from "node:crypto";
import type { Writable } from "node:stream";
import type { Engine } from "../engine/engine.ts";
import { linkOf } from "../engine/attach.ts";
import { failedContainer } from "../engine/engine-error.ts";
import { unpackProfile, type VolumeSpec } from "./volume-profile.ts";

/** The volumes that the mothers of an agent read, and what a container needs that writes in them. */
export interface VolumeDeps {
  readonly engine: Engine;
  readonly spec: VolumeSpec;
  /** Looks the image up whose Python unpacks. */
  readonly motherImage: (signal: AbortSignal) => Promise<string>;
  /** First id of the range that zygotes get, and its length. */
  readonly ids: readonly [first: number, count: number];
  /** Labels of containers that are alive; an unpacker adds its own. */
  readonly ownLabels: Set<string>;
}

/** A container that writes in the volumes. Disposing of it removes it. */
export interface Unpacker extends AsyncDisposable {
  readonly label: string;
  readonly input: Writable;
  /** Resolves to the next line that it prints; undefined if it has ended. */
  readonly nextLine: () => Promise<string | undefined>;
  /** @throws EngineError unless it has ended well; the limit's reason. */
  readonly end: () => Promise<void>;
}

/** For one call of the engine. */
export const callLimit = (): AbortSignal => AbortSignal.timeout(30_000);
/** How long an unpacker may take to clear away what it has not completed, in ms. */
const clearMs = 10_000;

/** The name of a folder in a volume: a hash of everything that decides what is in it. */
export function nameInVolume(content: readonly unknown[]): string {
  return createHash("sha256").update(JSON.stringify(content)).digest("hex").slice(0, 32);
}

/** Makes the volumes if they are missing. */
export async function createVolumes(
  { engine, spec }: Pick<VolumeDeps, "engine" | "spec">,
  limit: AbortSignal,
): Promise<void> {
  await engine.createVolume(spec.rootfs, "", limit);
  await engine.createVolume(spec.bundles, spec.agentName, limit);
}

/**
 * Starts a container that runs a program with the rights to write in the volumes.
 *
 * @throws EngineError; the limit's reason. No container is left then.
 */
export async function startUnpacker(
  { engine, spec, motherImage, ownLabels }: VolumeDeps,
  program: Buffer,
  limit: AbortSignal,
): Promise<Unpacker> {
  const label = `unpack-${randomUUID()}`;
  ownLabels.add(label);
  const forget = (): void => void ownLabels.delete(label);
  try {
    const image = await motherImage(limit);
    const id = await engine.create(unpackProfile(spec, image, label), callLimit());
    const remove = (): Promise<void> =>
      engine
        .remove(id, callLimit())
        .catch(() => {})
        .finally(forget);
    try {
      const link = linkOf(await engine.attach(id, limit));
      link.input.write(program);
      await engine.start(id, limit);
      const said = link.output[Symbol.asyncIterator]();
      let hasEnded = false;
      return {
        label,
        input: link.input,
        async nextLine() {
          const next = await said.next();
          return next.done ? undefined : Buffer.from(next.value).toString("utf8");
        },
        async end() {
          // If it ends before it has read all of its input, its output stream fails too.
          while (!(await said.next().catch(() => ({ done: true }))).done);
          await engine.wait(id, limit);
          hasEnded = true;
          const { exitCode } = await engine.inspect(id, callLimit());
          if (exitCode !== 0) failedContainer("files were not unpacked", link.diagnostics());
        },
        async [Symbol.asyncDispose]() {
          // At the end of its input it removes what it has begun.
          link.destroy();
          if (!hasEnded) await engine.wait(id, AbortSignal.timeout(clearMs)).catch(() => {});
          await remove();
        },
      };
    } catch (error) {
      await remove();
      throw error;
    }
  } catch (error) {
    forget();
    throw error;
  }
}
