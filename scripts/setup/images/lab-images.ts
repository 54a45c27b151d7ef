import { spawn } from "node:child_process";
import { basename, dirname } from "node:path";
import type Docker from "dockerode";
import { ensureBaseImage } from "./base-image.ts";
import { type DerivedImage, makeDerivedImage, isThere, nameOf } from "./derived-image.ts";
import { withSetupLock } from "../setup-lock.ts";

/** On a slow machine too, each image is made within this time. */
export const imageMs = 1_800_000;

/** The folder of Go's compiled library. Without it, the first build of each job takes 10 s. */
const GO_CACHE = "/usr/local/share/go-build";

/** Bash and Perl are in the base image. */
const LANGUAGES =
  "gcc g++ libc6-dev golang-go rustc default-jdk-headless mono-mcs lua5.4 php-cli r-base-core ruby";

/**
 * Returns the name of an image that runs every language. If the image is missing, it is made of Debian's packages and the
 * Node that runs this: Debian's Node is too old for TypeScript.
 */
export function ensureLanguagesImage(docker: Docker): Promise<string> {
  const then = `\nGOCACHE=${GO_CACHE} go build std`;
  const script = installing(LANGUAGES) + then;
  return ensure(
    docker,
    { repo: "airlock/languages", tag: "2" },
    script,
    { GOCACHE: GO_CACHE },
    true,
  );
}

/** Returns the name of an image that has CPython's own tests, from Debian's packages. */
export function ensureCpythonImage(docker: Docker): Promise<string> {
  const image = { repo: "airlock/cpython-tests", tag: "latest" };
  return ensure(docker, image, installing("libpython3.13-testsuite"));
}

const installing = (packages: string): string => `set -e
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends ${packages}
rm -rf /var/cache/apt/* /var/lib/apt/lists/* /usr/share/doc /usr/share/man`;

async function ensure(
  docker: Docker,
  image: DerivedImage,
  script: string,
  env: Readonly<Record<string, string>> = {},
  withNode = false,
): Promise<string> {
  if (await isThere(docker, image)) return nameOf(image);
  const base = await ensureBaseImage(docker, "python:3.13-slim");
  await withSetupLock(async () => {
    if (await isThere(docker, image)) return;
    const prepare = withNode ? putNode : undefined;
    await makeDerivedImage(docker, image, base, ["sh", "-c", script], env, prepare);
  });
  return nameOf(image);
}

async function putNode(container: Docker.Container): Promise<void> {
  const { execPath } = process;
  const tar = spawn("tar", ["-C", dirname(execPath), "-c", basename(execPath)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  await container.putArchive(tar.stdout, { path: "/usr/local/bin" });
}
