import type Docker from "dockerode";
import { OperatorError } from "../operator-error.ts";
import { say } from "../say.ts";
import { debianMirror, firstCarried } from "./debian-mirror.ts";
import { withDebian } from "./debootstrap.ts";
import { importImage } from "./import-image.ts";
import { hasCommand } from "./install-engine.ts";
import { pullImage } from "./pull-image.ts";
import { withSetupLock } from "./setup-lock.ts";
import { STANDS_IN_FOR, standInsFor } from "./stand-in.ts";

/** The image that serves as `baseImage`: itself, or a stand-in; pulled or built where missing. */
export async function ensureBaseImage(docker: Docker, baseImage: string): Promise<string> {
  return (
    (await findBaseImage(docker, baseImage)) ??
    (await withSetupLock(
      async () => (await findBaseImage(docker, baseImage)) ?? (await make(docker, baseImage)),
    ))
  );
}

/** The name under which the engine has `baseImage` or its stand-in, if it has either. */
export async function findBaseImage(
  docker: Docker,
  baseImage: string,
): Promise<string | undefined> {
  try {
    await docker.getImage(baseImage).inspect();
    return baseImage;
  } catch (error) {
    if ((error as { statusCode?: number }).statusCode !== 404) throw error;
  }
  const filters = { label: [`${STANDS_IN_FOR}=${baseImage}`] };
  const [image] = await docker.listImages({ filters });
  return image && (image.RepoTags?.[0] ?? image.Id);
}

async function make(docker: Docker, baseImage: string): Promise<string> {
  try {
    await pullImage(docker, baseImage);
    return baseImage;
  } catch (error) {
    const reason = (error as Error).message.trim();
    if (reason.includes("no space left on device")) throw diskFull(reason);
    say(`cannot pull ${baseImage}: ${reason}`);
    return build(docker, baseImage, reason);
  }
}

async function build(docker: Docker, baseImage: string, pullError: string): Promise<string> {
  const mirror = debianMirror();
  const standIn = await firstCarried(mirror, standInsFor(baseImage));
  if (!standIn || process.getuid?.() !== 0 || !hasCommand("apt-get")) {
    const advice = standIn
      ? `Run this as root on Debian or Ubuntu, and it builds a Python image from Debian's packages; or `
      : "";
    throw new OperatorError(
      `the image ${baseImage} is missing and cannot be pulled: ${pullError}\n${advice}load it (docker load, or docker pull where a registry answers), or set base_image to one that the engine has.`,
    );
  }
  const repo = "airlock/python";
  const tag = standIn.python;
  const changes = [
    `LABEL ${STANDS_IN_FOR}=${baseImage}`,
    "ENV LANG=C.UTF-8",
    "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    'CMD ["python3"]',
  ];
  await withDebian(standIn, mirror, async (root) => {
    try {
      await importImage(docker, root, { repo, tag, changes });
    } catch (error) {
      const reason = (error as Error).message;
      throw reason.includes("no space left on device") ? diskFull(reason) : error;
    }
  });
  say(`${repo}:${tag} stands in for ${baseImage}`);
  return `${repo}:${tag}`;
}

function diskFull(reason: string): OperatorError {
  return new OperatorError(
    `the engine's disk is full: make room (docker system df, docker system prune), then run this again.\n${reason}`,
  );
}
