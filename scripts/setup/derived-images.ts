import { text } from "node:stream/consumers";
import type Docker from "dockerode";
import { OperatorError, say } from "../operate/command.ts";
import { ensureBaseImage, importImage, inspectImage, PYTHON_SETTINGS } from "./set-up.ts";
import {
  debianMirror,
  firstCarried,
  mayInstall,
  standInsFor,
  withProgress,
  withSetupLock,
} from "./steps.ts";
import { withDebian } from "./tools.ts";

type DerivedImage = { repo: string; tag: string };

const nameOf = ({ repo, tag }: DerivedImage): string => `${repo}:${tag}`;

/** Makes an image of `base` and of what a command does in it with the host's network, for tests and benchmarks. */
async function makeDerivedImage(
  docker: Docker,
  image: DerivedImage,
  base: string,
  command: string[],
): Promise<void> {
  const title = `making ${nameOf(image)} from ${base}`;
  const elapsed = withProgress(title);
  const container = await docker.createContainer({
    Image: base,
    Cmd: command,
    Tty: true,
    HostConfig: { NetworkMode: "host" },
  });
  try {
    const output = text(await container.attach({ stream: true, stdout: true, stderr: true }));
    await container.start();
    const { StatusCode } = (await container.wait()) as { StatusCode: number };
    if (StatusCode !== 0) throw new OperatorError(`${title} failed:\n${await output}`);
    const changes = ['CMD ["python3"]', 'LABEL io.airlock.stands-in-for=""'];
    await container.commit({ ...image, changes });
  } finally {
    elapsed.stop();
    await container.remove({ force: true, v: true });
  }
  say(`${title}: done in ${elapsed.seconds()} s`);
}

const BASE = "python:3.13-slim";
const IMAGE = { repo: "airlock/science", tag: "latest" };
const NAME = nameOf(IMAGE);
/** Without Debian's packages. */
const PIP = ["python3", "-m", "pip", "install", "--no-cache-dir", "numpy", "pandas"];

/** OpenBLAS, because it starts threads, as numpy's own wheels do. */
const PACKAGES = ["python3-numpy", "python3-pandas", "libopenblas0-pthread"];

/**
 * Returns the name of an image with numpy and pandas, for tests and benchmarks. If it is missing,
 * builds it from Debian's packages, or with pip if this process may not do that.
 */
export async function ensureScienceImage(docker: Docker): Promise<string> {
  if (await inspectImage(docker, NAME)) return NAME;
  const base = mayInstall() ? undefined : await ensureBaseImage(docker, BASE);
  await withSetupLock(async () => {
    if (await inspectImage(docker, NAME)) return;
    await (base === undefined
      ? buildFromDebian(docker)
      : makeDerivedImage(docker, IMAGE, base, PIP));
  });
  return NAME;
}

async function buildFromDebian(docker: Docker): Promise<void> {
  const mirror = debianMirror();
  const standIn = await firstCarried(mirror, standInsFor(BASE));
  if (!standIn) throw new OperatorError(`${mirror} has no Debian with Python for ${NAME}`);
  const image = { ...IMAGE, changes: PYTHON_SETTINGS };
  await withDebian({ ...standIn, packages: PACKAGES }, mirror, (root) =>
    importImage(docker, root, image),
  );
}

/** On a slow machine too, each image is made within this time. */
export const imageMs = 1_800_000;

/** Returns the name of an image that has CPython's own tests, from Debian's packages. */
export function ensureCpythonImage(docker: Docker): Promise<string> {
  const image = { repo: "airlock/cpython-tests", tag: "latest" };
  return ensure(docker, image, "libpython3.13-testsuite");
}

/** Returns the name of an image that has Docker and Podman, to run as the engine of a pod. */
export function ensureEngineImage(docker: Docker): Promise<string> {
  const image = { repo: "airlock/engine", tag: "latest" };
  return ensure(docker, image, "docker.io docker-cli iptables podman crun nftables");
}

async function ensure(docker: Docker, image: DerivedImage, packages: string): Promise<string> {
  if (await inspectImage(docker, nameOf(image))) return nameOf(image);
  const base = await ensureBaseImage(docker, BASE);
  const script = `set -e
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends ${packages}
rm -rf /var/cache/apt/* /var/lib/apt/lists/* /usr/share/doc /usr/share/man`;
  await withSetupLock(async () => {
    if (await inspectImage(docker, nameOf(image))) return;
    await makeDerivedImage(docker, image, base, ["sh", "-c", script]);
  });
  return nameOf(image);
}
