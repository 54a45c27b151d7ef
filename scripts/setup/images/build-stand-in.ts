import type Docker from "dockerode";
import { say } from "../../command/say.ts";
import { debianMirror, firstCarried } from "./debian-mirror.ts";
import { withDebian } from "./debootstrap.ts";
import { importImage } from "./import-image.ts";
import { hasCommand } from "../engine/install-engine.ts";
import { STANDS_IN_FOR, standInsFor } from "./stand-in.ts";

/** The settings of the official Python images. */
export const PYTHON_SETTINGS = [
  "ENV LANG=C.UTF-8",
  "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  'CMD ["python3"]',
];

/**
 * Whether this process may build an image: it needs root for debootstrap, and apt to install it.
 */
export function mayBuild(): boolean {
  return process.getuid?.() === 0 && hasCommand("apt-get");
}

/**
 * Builds an image from Debian's packages to use as `baseImage`. Undefined if no Debian release
 * fits.
 */
export async function buildStandIn(docker: Docker, baseImage: string): Promise<string | undefined> {
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
