import { spawn } from "node:child_process";
import { basename, dirname } from "node:path";
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

/**
 * Makes an image of `base` and of what a command does in it, for tests and benchmarks; `prepare` may put files into the
 * container first. The command has the host's network.
 */
async function makeDerivedImage(
  docker: Docker,
  image: DerivedImage,
  base: string,
  command: string[],
  env: Readonly<Record<string, string>> = {},
  prepare: (container: Docker.Container) => Promise<unknown> = () => Promise.resolve(),
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
    await prepare(container);
    const output = text(await container.attach({ stream: true, stdout: true, stderr: true }));
    await container.start();
    const { StatusCode } = (await container.wait()) as { StatusCode: number };
    if (StatusCode !== 0) throw new OperatorError(`${title} failed:\n${await output}`);
    const variables = Object.entries(env).map(([name, value]) => `ENV ${name}=${value}`);
    const changes = ['CMD ["python3"]', 'LABEL io.airlock.stands-in-for=""', ...variables];
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

/** Returns the name of an image that has Docker and Podman, to run as the engine of a pod. */
export function ensureEngineImage(docker: Docker): Promise<string> {
  const image = { repo: "airlock/engine", tag: "latest" };
  return ensure(docker, image, installing("docker.io docker-cli iptables podman crun nftables"));
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
  if (await inspectImage(docker, nameOf(image))) return nameOf(image);
  const base = await ensureBaseImage(docker, "python:3.13-slim");
  await withSetupLock(async () => {
    if (await inspectImage(docker, nameOf(image))) return;
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
