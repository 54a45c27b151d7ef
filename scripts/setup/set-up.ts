import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type Docker from "dockerode";
import type { Config } from "../../shared/config/config.ts";
import { OperatorError, say } from "../operate/command.ts";
import { connect, type Engine, ensureEngine } from "./engine.ts";
import {
  debianMirror,
  firstCarried,
  mayInstall,
  standInsFor,
  STANDS_IN_FOR,
  withProgress,
  withSetupLock,
} from "./steps.ts";
import { withDebian } from "./tools.ts";

export type SetUp = Engine & {
  /** The image that is used as `base_image`. */
  image: string;
};

/** Makes sure that an engine answers and has the default image; fast if both are there. */
export async function setUp(config: Config): Promise<SetUp> {
  const engine = await ensureEngine(config.docker_host);
  const image = await ensureBaseImage(connect(engine.dockerHost), config.base_image);
  return { ...engine, image };
}

/** An engine's name for an image without a name. */
const UNNAMED = "<none>:<none>";

/** Returns the name of `baseImage` or its stand-in; pulls or builds it if both are missing. */
export async function ensureBaseImage(docker: Docker, baseImage: string): Promise<string> {
  const there = await findBaseImage(docker, baseImage);
  if (there) return there;
  return withSetupLock(async () => {
    try {
      return (await findBaseImage(docker, baseImage)) ?? (await make(docker, baseImage));
    } catch (error) {
      throw explainDiskFull(error as Error);
    }
  });
}

/** The engine's name of `baseImage` or its stand-in; undefined if it has neither. */
export async function findBaseImage(
  docker: Docker,
  baseImage: string,
): Promise<string | undefined> {
  if (await inspectImage(docker, baseImage)) return baseImage;
  const filters = { label: [`${STANDS_IN_FOR}=${baseImage}`] };
  const found = await docker.listImages({ filters });
  const images = await Promise.all(found.map(({ Id }) => inspectImage(docker, Id)));
  // Images built from a stand-in inherit its label.
  const [oldest] = images
    .filter((image) => image?.RootFS.Layers?.length === 1)
    .sort((one, other) => Date.parse(one!.Created) - Date.parse(other!.Created));
  return oldest?.RepoTags?.find((name) => name !== UNNAMED) ?? oldest?.Id;
}

/** What the engine says of an image; undefined if it has none of that name. */
export async function inspectImage(
  docker: Docker,
  image: string,
): Promise<Docker.ImageInspectInfo | undefined> {
  try {
    return await docker.getImage(image).inspect();
  } catch (error) {
    if ((error as { statusCode?: number }).statusCode !== 404) throw error;
    return undefined;
  }
}

async function make(docker: Docker, baseImage: string): Promise<string> {
  const pullError = await tryToPull(docker, baseImage);
  if (pullError === undefined) return baseImage;
  // It needs root for debootstrap, and apt to install that.
  const built = mayInstall() ? await buildStandIn(docker, baseImage) : undefined;
  if (built) return built;
  const root = standInsFor(baseImage).length
    ? "run this as root on Debian or Ubuntu, and it builds one from Debian's packages; or "
    : "";
  throw new OperatorError(
    `the image ${baseImage} is missing and cannot be pulled: ${pullError}\nTo mend it, ${root}load the image (docker load, or docker pull where a registry answers), or set base_image to one that the engine has.`,
  );
}

/** Pulls the image, or returns why that failed. */
async function tryToPull(docker: Docker, image: string): Promise<string | undefined> {
  try {
    await pullImage(docker, image);
    return undefined;
  } catch (error) {
    const reason = (error as Error).message.trim();
    if (isDiskFull(reason)) throw error;
    say(`cannot pull ${image}: ${reason}`);
    return reason;
  }
}

function isDiskFull(reason: string): boolean {
  return reason.includes("no space left on device");
}

function explainDiskFull(error: Error): Error {
  if (!isDiskFull(error.message)) return error;
  return new OperatorError(
    `the engine's disk is full: make room (docker system df, docker system prune), then run this again.\n${error.message}`,
    { cause: error },
  );
}

const STALL_MS = 20_000;
const PROGRESS_EVERY_MS = 5000;

/** Pulls an image; gives up if there is no progress for `stallMs`. Throws the engine's error. */
export async function pullImage(docker: Docker, image: string, stallMs = STALL_MS): Promise<void> {
  say(`pulling ${image} …`);
  const stalled = new AbortController();
  const giveUp = (): void =>
    stalled.abort(new Error(`the registry sent nothing for ${stallMs / 1000} s`));
  const timer = setTimeout(giveUp, stallMs);
  const layers = new Map<string, number>();
  const report = setInterval(
    () => say(`pulling ${image} … ${megabytes(layers)} MB`),
    PROGRESS_EVERY_MS,
  );
  try {
    const stream = await docker.pull(image, { abortSignal: stalled.signal });
    await readEngineStream(stream, (event) => {
      timer.refresh();
      if (event.status === "Downloading")
        layers.set(event.id ?? "", event.progressDetail?.current ?? 0);
    });
  } catch (error) {
    throw stalled.signal.aborted ? (stalled.signal.reason as Error) : error;
  } finally {
    clearTimeout(timer);
    clearInterval(report);
  }
}

function megabytes(layers: Map<string, number>): number {
  const bytes = [...layers.values()].reduce((sum, size) => sum + size, 0);
  return Math.round(bytes / 1e6);
}

/** One line of the progress that an engine streams while it pulls or imports an image. */
type EngineEvent = {
  status?: string;
  id?: string;
  error?: string;
  progressDetail?: { current?: number; total?: number };
};

/** Reads an engine's progress to its end. Throws what the engine reports as an error. */
export async function readEngineStream(
  stream: NodeJS.ReadableStream,
  onEvent: (event: EngineEvent) => void = () => {},
): Promise<void> {
  for await (const line of createInterface({ input: stream })) {
    if (!line.trim()) continue;
    const event = JSON.parse(line) as EngineEvent;
    if (event.error) throw new Error(event.error);
    onEvent(event);
  }
}

/** The settings of the official Python images. */
export const PYTHON_SETTINGS = [
  "ENV LANG=C.UTF-8",
  "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  'CMD ["python3"]',
];

/**
 * Builds an image from Debian's packages to use as `baseImage`. Undefined if no Debian release
 * fits.
 */
async function buildStandIn(docker: Docker, baseImage: string): Promise<string | undefined> {
  const mirror = debianMirror();
  const standIn = await firstCarried(mirror, standInsFor(baseImage));
  if (!standIn) return undefined;

  const repo = "airlock/python";
  const tag = standIn.python;
  const changes = [`LABEL ${STANDS_IN_FOR}=${baseImage}`, ...PYTHON_SETTINGS];
  await withDebian(standIn, mirror, (root) => importImage(docker, root, { repo, tag, changes }));
  say(`${repo}:${tag} stands in for ${baseImage}`);
  return `${repo}:${tag}`;
}

type ImportedImage = { repo: string; tag: string; changes: string[] };

/** Makes an image of one layer from the folder `root`, over the engine's API. */
export async function importImage(
  docker: Docker,
  root: string,
  image: ImportedImage,
): Promise<void> {
  const title = `importing ${image.repo}:${image.tag}`;
  const elapsed = withProgress(title);
  const tar = spawn("tar", ["-C", root, "--numeric-owner", "--one-file-system", "-c", "."], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  try {
    const packed = once(tar, "exit") as Promise<[number | null]>;
    await readEngineStream(await docker.importImage(tar.stdout, image));
    const [code] = await packed;
    if (code !== 0) throw new Error(`tar ended with exit code ${code ?? "none"}`);
  } finally {
    tar.kill();
    elapsed.stop();
  }
  say(`${title}: done in ${elapsed.seconds()} s`);
}
