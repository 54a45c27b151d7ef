import type Docker from "dockerode";
import { OperatorError } from "../../command/operator-error.ts";
import { say } from "../../command/say.ts";
import { buildStandIn, mayBuild } from "./build-stand-in.ts";
import { pullImage } from "./pull-image.ts";
import { withSetupLock } from "../setup-lock.ts";
import { STANDS_IN_FOR, standInsFor } from "./stand-in.ts";

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
  if (await inspect(docker, baseImage)) return baseImage;
  const filters = { label: [`${STANDS_IN_FOR}=${baseImage}`] };
  const found = await docker.listImages({ filters });
  const images = await Promise.all(found.map(({ Id }) => inspect(docker, Id)));
  // Images built from a stand-in inherit its label.
  const [oldest] = images
    .filter((image) => image?.RootFS.Layers?.length === 1)
    .sort((one, other) => Date.parse(one!.Created) - Date.parse(other!.Created));
  return oldest?.RepoTags?.find((name) => name !== UNNAMED) ?? oldest?.Id;
}

async function inspect(
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
  const built = mayBuild() ? await buildStandIn(docker, baseImage) : undefined;
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
