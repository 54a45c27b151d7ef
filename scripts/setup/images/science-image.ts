import type Docker from "dockerode";
import { OperatorError } from "../../command/operator-error.ts";
import { ensureBaseImage } from "./base-image.ts";
import { mayBuild, PYTHON_SETTINGS } from "./build-stand-in.ts";
import { withDebian } from "./debootstrap.ts";
import { debianMirror, firstCarried } from "./debian-mirror.ts";
import { makeDerivedImage, isThere, nameOf } from "./derived-image.ts";
import { importImage } from "./import-image.ts";
import { withSetupLock } from "../setup-lock.ts";
import { standInsFor } from "./stand-in.ts";

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
  if (await isThere(docker, IMAGE)) return NAME;
  const base = mayBuild() ? undefined : await ensureBaseImage(docker, BASE);
  await withSetupLock(async () => {
    if (await isThere(docker, IMAGE)) return;
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
