import { text } from "node:stream/consumers";
import type Docker from "dockerode";
import { OperatorError } from "../../command/operator-error.ts";
import { say } from "../../command/say.ts";
import { ensureBaseImage } from "./base-image.ts";
import { mayBuild, PYTHON_SETTINGS } from "./build-stand-in.ts";
import { withDebian } from "./debootstrap.ts";
import { debianMirror, firstCarried } from "./debian-mirror.ts";
import { importImage } from "./import-image.ts";
import { withProgress } from "../run-step.ts";
import { withSetupLock } from "../setup-lock.ts";
import { standInsFor } from "./stand-in.ts";

const BASE = "python:3.13-slim";
const REPO = "airlock/science";
const TAG = "latest";
const NAME = `${REPO}:${TAG}`;

/** OpenBLAS, because it starts threads, as numpy's own wheels do. */
const PACKAGES = ["python3-numpy", "python3-pandas", "libopenblas0-pthread"];

/**
 * Returns the name of an image with numpy and pandas, for tests and benchmarks. If it is missing,
 * builds it from Debian's packages, or with pip if this process may not do that.
 */
export async function ensureScienceImage(docker: Docker): Promise<string> {
  if (await isThere(docker)) return NAME;
  const base = mayBuild() ? undefined : await ensureBaseImage(docker, BASE);
  await withSetupLock(async () => {
    if (await isThere(docker)) return;
    await (base === undefined ? buildFromDebian(docker) : buildWithPip(docker, base));
  });
  return NAME;
}

async function isThere(docker: Docker): Promise<boolean> {
  try {
    await docker.getImage(NAME).inspect();
    return true;
  } catch (error) {
    if ((error as { statusCode?: number }).statusCode !== 404) throw error;
    return false;
  }
}

async function buildFromDebian(docker: Docker): Promise<void> {
  const mirror = debianMirror();
  const standIn = await firstCarried(mirror, standInsFor(BASE));
  if (!standIn) throw new OperatorError(`${mirror} has no Debian with Python for ${NAME}`);
  const image = { repo: REPO, tag: TAG, changes: PYTHON_SETTINGS };
  await withDebian({ ...standIn, packages: PACKAGES }, mirror, (root) =>
    importImage(docker, root, image),
  );
}

async function buildWithPip(docker: Docker, base: string): Promise<void> {
  const title = `installing numpy and pandas into ${NAME}`;
  const elapsed = withProgress(title);
  const container = await docker.createContainer({
    Image: base,
    Cmd: ["python3", "-m", "pip", "install", "--no-cache-dir", "numpy", "pandas"],
    Tty: true,
  });
  try {
    const output = text(await container.attach({ stream: true, stdout: true, stderr: true }));
    await container.start();
    const { StatusCode } = (await container.wait()) as { StatusCode: number };
    if (StatusCode !== 0) throw new OperatorError(`${title} failed:\n${await output}`);
    const changes = ['CMD ["python3"]', 'LABEL io.airlock.stands-in-for=""'];
    await container.commit({ repo: REPO, tag: TAG, changes });
  } finally {
    elapsed.stop();
    await container.remove({ force: true, v: true });
  }
  say(`${title}: done in ${elapsed.seconds()} s`);
}
