import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import type { StartSandbox } from "../backends/containers.ts";
import { commonProfile } from "../backends/profiles.ts";
import type { Engine } from "../engine/engine.ts";
import { EngineError, labels, type SandboxLabels, type SandboxSpec } from "../sandbox/sandbox.ts";
import { abortable } from "../waiting.ts";
import { readSmallFile, tarEnd, tarHeader, tarPadding } from "./archive.ts";
import { FURNISHED, REPOSITORY, STANDS_IN_FOR, STEP } from "./images.ts";

/** Their names: a label could come from any image. The number is that of what is added. */
const NAME = "airlock/furnished";
export const furnishedName = (imageId: string): string =>
  `${NAME}:1-${imageId.replace(/^sha256:/, "")}`;

const accounts = { passwd: "user:x:1000:1000::/tmp:/bin/sh", group: "user:x:1000:" };
const aliases = ["mnt/data", "home/user"];
const MAX_ACCOUNTS_BYTES = 1024 ** 2;

const MAKE_MS = 60_000;
/** How long containers start on the image itself after a failure. */
const PAUSE_MS = 60_000;

/**
 * Images with the files that forks get when their image is unpacked (python/unpack.py, `furnish`). The root of a
 * container is read-only, so that an engine writes nothing into it: its image must have them. Nothing of the image runs.
 */
export function createFurnishedImages(engine: Engine, log: Logger) {
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
    /** Starts containers on such images. Each is made before the first container that needs it. */
    startOn:
      (start: StartSandbox): StartSandbox =>
      async (spec, signal) => {
        const startOnce = async () =>
          start({ ...spec, image: await abortable(imageFor(spec), signal) }, signal);
        return startOnce().catch((error: unknown) => {
          if (!(error instanceof EngineError) || error.code !== "image_not_found") throw error;
          // Another agent may have removed it.
          known.delete(spec.image);
          return startOnce();
        });
      },
    /** Those that containers of this process start on. */
    used: () => Promise.all(known.values()),
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
    const made = await engine.commit(id, NAME, name.split(":")[1]!, changesOf(base), limit);
    return await oldestOf(engine, base, made, limit);
  } finally {
    // If the removal fails, the reaper removes the container later.
    await engine.remove(id, AbortSignal.timeout(MAKE_MS)).catch(() => {});
  }
}

/** Leaves one image where several agents have furnished the same one at once: all of them choose the oldest. */
async function oldestOf(
  engine: Engine,
  base: string,
  own: string,
  signal: AbortSignal,
): Promise<string> {
  const made = (await engine.imageList(signal)).filter(
    // Any image may have the label.
    ({ labels: its, parentId }) => its[FURNISHED] === base && parentId === base,
  );
  const [oldest, ...others] = made.sort(
    (a, b) => a.createdMs - b.createdMs || (a.id < b.id ? -1 : 1),
  );
  // An engine that tells no parents leaves an image for each agent.
  if (!oldest) return own;
  const [, tag = ""] = furnishedName(base).split(":");
  await engine.tag(oldest.id, NAME, tag, signal);
  // A container may use it: it is collected later.
  for (const { id } of others) await engine.removeName(id, signal).catch(() => {});
  return oldest.id;
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
  const blank = [...Object.values(labels), STANDS_IN_FOR, REPOSITORY, STEP];
  return [...blank.map((name) => `LABEL ${name}=""`), `LABEL ${FURNISHED}=${base}`];
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
