import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import type { StartSandbox } from "../backends/containers.ts";
import { commonProfile } from "../backends/profiles.ts";
import type { Engine } from "../engine/engine.ts";
import { EngineError, labels, type SandboxLabels, type SandboxSpec } from "../sandbox/sandbox.ts";
import { abortable } from "../waiting.ts";
import { readSmallFile, tarEnd, tarHeader, tarPadding } from "./archive.ts";
import { STANDS_IN_FOR } from "./images.ts";

/**
 * Images with the files that forks get when their image is unpacked (python/unpack.py, `furnish`). The root of a
 * container is read-only, so that an engine writes nothing into it: its image must have them. Nothing of the image runs.
 */
export interface FurnishedImages {
  /** Starts containers on such images. Each is made before the first container that needs it. */
  readonly startOn: (start: StartSandbox) => StartSandbox;
  /**
   * Removes those whose base has lost its last name and has started no container of this process. Returns their
   * number. Another agent that needs one makes it again.
   *
   * @throws EngineError; the signal's reason.
   */
  readonly prune: (signal: AbortSignal) => Promise<number>;
}

/** Their names: a label could come from any image. The number is that of what is added. */
const REPOSITORY = "airlock/furnished";
export const furnishedName = (imageId: string): string =>
  `${REPOSITORY}:1-${imageId.replace(/^sha256:/, "")}`;

const accounts = { passwd: "user:x:1000:1000::/tmp:/bin/sh", group: "user:x:1000:" };
const aliases = ["mnt/data", "home/user"];
const MAX_ACCOUNTS_BYTES = 1024 ** 2;

const MAKE_MS = 60_000;
/** How long containers start on the image itself after a failure. */
const PAUSE_MS = 60_000;

export function createFurnishedImages(engine: Engine, log: Logger): FurnishedImages {
  /** By image. */
  const known = new Map<string, Promise<string>>();

  function imageFor({ image, labels: owner }: SandboxSpec): Promise<string> {
    const found = known.get(image);
    if (found) return found;
    const made = furnished(engine, image, owner).catch((error: unknown) => {
      const reason = describeError(error);
      log.warn("containers of {image} lack the user's name: {reason}", { image, reason });
      setTimeout(() => known.delete(image), PAUSE_MS).unref();
      return image;
    });
    known.set(image, made);
    return made;
  }

  return {
    startOn: (start) => async (spec, signal) => {
      const image = await abortable(imageFor(spec), signal);
      return start({ ...spec, image }, signal).catch((error: unknown) => {
        if (error instanceof EngineError && error.code === "image_not_found")
          known.delete(spec.image);
        throw error;
      });
    },
    async prune(signal) {
      const used = await Promise.all(known.values());
      let removed = 0;
      for (const { id } of await engine.imagesNamed(REPOSITORY, signal)) {
        const names = await engine.imageNames(id, signal);
        const base = /:1-([0-9a-f]{64})$/.exec(
          names.find((name) => name.includes(REPOSITORY)) ?? "",
        );
        if (base === null || used.includes(id)) continue;
        const [, ...others] = await engine.imageNames(`sha256:${base[1]}`, signal);
        if (others.length > 0) continue;
        try {
          await engine.removeName(furnishedName(base[1]!), signal);
          removed += 1;
        } catch (error) {
          // A container uses it.
          if (!(error instanceof EngineError) || error.transient) throw error;
        }
      }
      return removed;
    },
  };
}

/** The id of the furnished image, which is made if there is none; the image itself if it is not there. */
async function furnished(engine: Engine, image: string, owner: SandboxLabels): Promise<string> {
  const limit = AbortSignal.timeout(MAKE_MS);
  const base = await engine.imageId(image, limit);
  if (base === null) return image;
  const name = furnishedName(base);
  const present = await engine.imageId(name, limit);
  if (present !== null) return present;
  const id = await engine.create(profileOf(base, owner), limit);
  try {
    await engine.writeFiles(id, await furniture(engine, id, limit), limit);
    const [, tag = ""] = name.split(":");
    return await engine.commit(id, REPOSITORY, tag, changesOf(base), limit);
  } finally {
    // If the removal fails, the reaper removes the container later.
    await engine.remove(id, AbortSignal.timeout(MAKE_MS)).catch(() => {});
  }
}

/** The create call of a container that is never started. */
function profileOf(image: string, owner: SandboxLabels) {
  return {
    ...commonProfile(image, owner),
    Cmd: ["true"],
    NetworkDisabled: true,
    HostConfig: { NetworkMode: "none", SecurityOpt: ["no-new-privileges"] },
  };
}

/** Blanks labels, which the image would inherit from its base and the container. */
function changesOf(base: string): string[] {
  const blank = [...Object.values(labels), STANDS_IN_FOR, "io.airlock.repository"];
  return [...blank.map((name) => `LABEL ${name}=""`), `LABEL io.airlock.furnished=${base}`];
}

async function furniture(engine: Engine, id: string, limit: AbortSignal): Promise<Buffer> {
  const parts: Buffer[] = [];
  for (const [name, entry] of Object.entries(accounts)) {
    const path = `etc/${name}`;
    const found = await engine.readPath(id, `/${path}`, limit);
    const text = found === null ? "" : await readSmallFile(found, MAX_ACCOUNTS_BYTES);
    const more = text === null ? null : withEntry(text.toString("latin1"), entry);
    if (more === null) continue;
    const bytes = Buffer.from(more, "latin1");
    parts.push(tarHeader(path, bytes.length), bytes, tarPadding(bytes.length));
  }
  for (const path of aliases) {
    const found = await engine.readPath(id, `/${path}`, limit);
    found?.destroy();
    if (found === null) parts.push(tarHeader(path, 0, "/output"));
  }
  return Buffer.concat([...parts, tarEnd]);
}

/** The text of passwd or group with one more entry; null if its name or id is there. */
function withEntry(text: string, entry: string): string | null {
  const [name, , number] = entry.split(":");
  const taken = text.split("\n").map((line) => line.split(":"));
  if (taken.some((each) => each[0] === name || each[2] === number)) return null;
  return `${text}${text === "" || text.endsWith("\n") ? "" : "\n"}${entry}\n`;
}
