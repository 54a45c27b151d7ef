import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { OperatorError, parseCommandLine, runMain, say } from "./command.ts";
import { testedRef, toolEnv, wrongArguments } from "./command.ts";

const command = "npm run release";
const HELP = `Usage: ${command} -- <version> [--publish]

Makes the files of a release from HEAD, once npm test has passed on it, in out/. Starts the image, and has each package run a
job on it from an empty folder. --publish puts out what is not out yet: image and chart with skopeo, Python's packages with
twine, npm's with npm. Needs Docker, skopeo, and Python with venv.

AIRLOCK_BASE names the base image (node:24-slim), AIRLOCK_IMAGE the published image (from the repository in package.json).
`;

/** The files that state the version, and how. The first heading of a changelog is that of the release. */
const places: readonly (readonly [pattern: RegExp, ...files: string[]])[] = [
  [/"version": "(.+?)"/, "package.json", "package-lock.json"],
  [/"version": "(.+?)"/, "clients/typescript/package.json", "clients/cli/package.json"],
  [/version(?:__)? = "(.+?)"/, "api/version.ts", "clients/python/src/airlock/__init__.py"],
  [/^version: (.+)\nappVersion: \1$/m, "packaging/chart/Chart.yaml"],
  [/^## (.+)$/m, "CHANGELOG.md", "clients/typescript/CHANGELOG.md"],
  [/^## (.+)$/m, "clients/cli/CHANGELOG.md", "clients/python/CHANGELOG.md"],
];
/** npm's packages with their number of files: one that is missing, or that nobody meant to publish, is noticed. */
const npmPackages = [
  { folder: "clients/typescript", name: "airlock-exec", files: 24 },
  { folder: "clients/cli", name: "airlock-exec-cli", files: 7 },
];
type Release = { version: string; repository: string };
type Place = { cwd?: string; env?: Record<string, string> };
/** For each of the image's platforms Node's name, and the emulator that binfmt_misc has on other machines. */
const machines = { amd64: ["x64", "qemu-x86_64"], arm64: ["arm64", "qemu-aarch64"] } as const;

const out = resolve("out");
/** The sources of HEAD; in this folder, because hard links to node_modules cannot leave its file system. */
const source = join(out, "source");
const work = join(tmpdir(), `airlock-release-${process.pid}`);
const seconds = Number(run("git", ["log", "-1", "--format=%ct"]));
const created = new Date(seconds * 1000).toISOString();

await runMain(async () => {
  const { values, positionals } = parseCommandLine(command, {
    allowPositionals: true,
    options: { help: { type: "boolean", short: "h" }, publish: { type: "boolean" } },
  });
  if (values.help) return void process.stdout.write(HELP);
  const [version, ...others] = positionals;
  if (version === undefined || others.length > 0)
    throw wrongArguments("it takes one version, such as 0.2.0", command);
  const { repository } = readJson("package.json") as { repository: string };
  if (repository === "") {
    const unknown = "package.json names no repository (such as https://github.com/…/airlock)";
    if (values.publish) throw new OperatorError(`${unknown}: set it, then run this again`);
    say(`${unknown}: image and packages are made without it`);
  }
  const { GITHUB_ACTIONS, ACTIONS_ID_TOKEN_REQUEST_URL } = process.env;
  if (values.publish && GITHUB_ACTIONS && !ACTIONS_ID_TOKEN_REQUEST_URL)
    throw new OperatorError("PyPI and npm need to know this job: give it `id-token: write`");
  checkVersions(version);
  checkTested();
  try {
    const files = make({ version, repository });
    await tryOut(version, files);
    const sums = files.map((file) => `${hashOf(readFileSync(join(out, file)))}  ${file}\n`);
    writeFileSync(join(out, "SHA256SUMS"), sums.join(""));
    process.stdout.write(sums.join(""));
    if (values.publish) await publish({ version, repository }, files);
  } finally {
    for (const folder of [work, source]) rmSync(folder, { recursive: true, force: true });
  }
});

function checkVersions(version: string): void {
  const wrong = places.flatMap(([pattern, ...files]) =>
    files.flatMap((file) => {
      const found = pattern.exec(readFileSync(file, "utf8"))?.[1];
      return found === version ? [] : `${file} (${found ?? "none"})`;
    }),
  );
  if (wrong.length > 0)
    throw new OperatorError(`the version is not ${version} in ${wrong.join(", ")}`);
}

function checkTested(): void {
  const changed = run("git", ["status", "--porcelain"]);
  if (changed)
    throw new OperatorError(`some changes are not committed: commit or remove them\n${changed}`);
  const tested = run("git", ["for-each-ref", "--format=%(objectname)", testedRef]);
  if (tested !== run("git", ["rev-parse", "HEAD"]))
    throw new OperatorError(
      "the tests of HEAD have not passed here: run npm test, then this again",
    );
}

/** Makes all files but the sums; returns their names. */
function make(release: Release): string[] {
  rmSync(out, { recursive: true, force: true });
  mkdirSync(join(source, "node_modules"), { recursive: true });
  mkdirSync(work, { mode: 0o700 });
  const copies = 'git archive HEAD | tar -x -C "$0" && cp -al node_modules/. "$0/node_modules"';
  run("sh", ["-c", copies, source]);
  // Else scripts/run would take the packages for older than their list.
  utimesSync(join(source, "package-lock.json"), 0, 0);
  const sbom = ["sbom", "--sbom-format=cyclonedx", "--package-lock-only", "--omit=dev"];
  // Two of its lines differ from call to call.
  const lines = run("npm", sbom)
    .split("\n")
    .filter((line) => !/"(serialNumber|timestamp)":/.test(line));
  writeFileSync(join(out, "sbom.cdx.json"), lines.join("\n"));
  return [
    makeImage(release),
    ...npmPackages.map((one) => makeNpmPackage(release, one)),
    ...makePythonPackages(release),
    pack(join(source, "packaging/chart"), "airlock/", `airlock-${release.version}.tgz`),
    "sbom.cdx.json",
  ];
}

/** Builds the image for each platform that this machine runs, as an archive in OCI's layout. */
function makeImage({ version, repository }: Release): string {
  const layout = join(work, "image");
  const base = `--build-arg=BASE=${process.env["AIRLOCK_BASE"] ?? "node:24-slim"}`;
  const revision = run("git", ["rev-parse", "HEAD"]);
  const about = { version, created, revision, source: repository };
  const labels = Object.entries(about).map(
    ([key, value]) => `--label=org.opencontainers.image.${key}=${value}`,
  );
  const built = Object.entries(machines).filter(([architecture, [node, emulator]]) => {
    const isNative = process.arch === node;
    if (!isNative && !existsSync(`/proc/sys/fs/binfmt_misc/${emulator}`)) {
      say(`left out: the image for ${architecture}, for which binfmt_misc needs ${emulator}`);
      return false;
    }
    const platform = isNative ? [] : [`--platform=linux/${architecture}`];
    const tag = `airlock:${version}-${architecture}`;
    run("docker", ["build", ...platform, ...labels, base, "--tag", tag, source]);
    // Without buildx, Docker takes the base that is there, whatever its platform.
    const made = run("docker", ["image", "inspect", "--format={{.Architecture}}", tag]);
    if (made !== architecture)
      throw new OperatorError(
        `the image for ${architecture} is one for ${made}: docker build needs buildx and a base for both`,
      );
    run("skopeo", ["copy", `docker-daemon:${tag}`, `oci:${layout}:${architecture}`]);
    return true;
  });
  const index = readJson(join(layout, "index.json")) as { manifests: object[] };
  const manifests = built.map(([architecture], at) => ({
    ...index.manifests[at],
    annotations: undefined,
    platform: { os: "linux", architecture },
  }));
  setRoot(layout, { mediaType: "application/vnd.oci.image.index.v1+json", manifests });
  return pack(layout, "", `airlock-${version}-image.tar`);
}

function makeNpmPackage(
  { version, repository }: Release,
  { folder, name, files }: (typeof npmPackages)[number],
): string {
  const cwd = join(source, folder);
  const known = repository !== "" && {
    repository: { type: "git", url: `git+${repository}.git`, directory: folder },
    homepage: `${repository}#readme`,
  };
  const manifest = { ...(readJson(join(cwd, "package.json")) as object), ...known };
  writeFileSync(join(cwd, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
  run("npm", ["pack", "--ignore-scripts=false", "--pack-destination", out], { cwd });
  const file = `${name}-${version}.tgz`;
  const packed = run("tar", ["-tzf", join(out, file)]).split("\n");
  if (packed.length === files) return file;
  const fault = `${file} has ${packed.length} files, not ${files}; scripts/operate/release.ts states the number`;
  throw new OperatorError([`${fault}:`, ...packed].join("\n"));
}

function makePythonPackages({ version, repository }: Release): string[] {
  const folder = join(source, "clients/python");
  const urls = `\n[project.urls]\nRepository = "${repository}"\nHomepage = "${repository}#readme"\n`;
  if (repository !== "") appendFileSync(join(folder, "pyproject.toml"), urls);
  run("python3", ["-m", "venv", join(work, "tools")]);
  run(join(work, "tools/bin/pip"), ["install", "--quiet", "build==1.6.1", "twine==7.0.0"]);
  const env = { SOURCE_DATE_EPOCH: String(seconds) };
  run(join(work, "tools/bin/python"), ["-m", "build", "--outdir", out, folder], { env });
  const name = `airlock_exec-${version}`;
  // The archive of the sources has the time at which it was packed.
  run("tar", ["-xzf", join(out, `${name}.tar.gz`), "-C", work]);
  return [`${name}-py3-none-any.whl`, pack(join(work, name), `${name}/`, `${name}.tar.gz`)];
}

/** Packs a folder into a file of out/: equal files give equal bytes. */
function pack(folder: string, prefix: string, file: string): string {
  const target = join(out, file);
  const owner = ["--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"];
  const names = ["--sort=name", `--mtime=@${seconds}`, `--transform=s,^,${prefix},`];
  const format = ["--format=ustar", "-C", folder, "-cf", target];
  run("tar", [...owner, ...names, ...format, ...readdirSync(folder).toSorted()]);
  if (!file.endsWith(".tar")) writeFileSync(target, gzipSync(readFileSync(target)));
  return file;
}

/** Stores bytes, or a value as JSON, in a folder of OCI's layout. */
function store(layout: string, content: Buffer | object, mediaType: string) {
  const bytes = Buffer.isBuffer(content) ? content : Buffer.from(JSON.stringify(content));
  const hash = hashOf(bytes);
  mkdirSync(join(layout, "blobs/sha256"), { recursive: true });
  writeFileSync(join(layout, "blobs/sha256", hash), bytes);
  return { mediaType, digest: `sha256:${hash}`, size: bytes.length };
}

function setRoot(layout: string, root: { mediaType: string } & Record<string, unknown>): void {
  const manifests = [store(layout, { schemaVersion: 2, ...root }, root.mediaType)];
  writeFileSync(join(layout, "index.json"), JSON.stringify({ schemaVersion: 2, manifests }));
  writeFileSync(join(layout, "oci-layout"), '{"imageLayoutVersion":"1.0.0"}');
}

/** Starts the image; each package runs a job there, from a folder that has nothing else. */
async function tryOut(version: string, files: readonly string[]): Promise<void> {
  const [image = "", ts, cli, wheel, sdist] = files;
  const tag = `airlock:${version}`;
  run("skopeo", ["copy", `oci-archive:${join(out, image)}`, `docker-daemon:${tag}`]);
  const socket = "/var/run/docker.sock";
  const engine = [`--volume=${socket}:${socket}`, `--group-add=${statSync(socket).gid}`];
  const options = ["--detach", "--publish=127.0.0.1::8080", ...engine];
  const id = run("docker", ["run", ...options, tag, "start"]);
  try {
    while (!run("docker", ["logs", id]).includes("ready in")) await sleep(1000);
    const AIRLOCK_URL = `http://${run("docker", ["port", id, "8080/tcp"])}`;
    const install = 'npm install --silent --no-audit --no-fund "$0"';
    const node = `import { connect } from "airlock-exec"; const { stdout } = await connect({ url: "${AIRLOCK_URL}" }).run("print(6 * 7)"); console.log(stdout)`;
    const python = `import airlock; print(airlock.connect("${AIRLOCK_URL}").run("print(6 * 7)").stdout)`;
    const inVenv = `python3 -m venv venv; venv/bin/pip install --quiet "$0"; venv/bin/python -I -c '${python}'`;
    const trials = [
      [ts, `${install}; node --input-type=module -e '${node}'`],
      [cli, `${install}; echo 'print(6 * 7)' >job.py; node_modules/.bin/airlock run job.py`],
      [wheel, inVenv],
      [sdist, inVenv],
    ];
    for (const [file = "", script = ""] of trials) {
      const cwd = mkdtempSync(join(work, "empty-"));
      const env = { AIRLOCK_URL, XDG_CONFIG_HOME: cwd };
      const said = run("sh", ["-ec", script, join(out, file)], { cwd, env });
      if (!/^42$/m.test(said)) throw new OperatorError(`a job from ${file} gave ${said}, not 42`);
    }
  } finally {
    run("docker", ["stop", "--time=60", id]);
    run("docker", ["rm", "--volumes", id]);
  }
  say("the image ran a job of each package, which was alone in a folder");
}

async function publish({ version, repository }: Release, files: readonly string[]) {
  const { pathname } = new URL(repository);
  const image = process.env["AIRLOCK_IMAGE"] ?? `ghcr.io${pathname.toLowerCase()}`;
  copyOut(`oci-archive:${join(out, files[0]!)}`, `docker://${image}:${version}`);
  const layout = join(work, "chart");
  const helm = "application/vnd.cncf.helm";
  const about = { apiVersion: "v2", name: "airlock", version };
  const config = store(layout, about, `${helm}.config.v1+json`);
  const chart = readFileSync(join(out, `airlock-${version}.tgz`));
  const layers = [store(layout, chart, `${helm}.chart.content.v1.tar+gzip`)];
  setRoot(layout, { mediaType: "application/vnd.oci.image.manifest.v1+json", config, layers });
  copyOut(`oci:${layout}`, `docker://${dirname(image)}/charts/airlock:${version}`);

  const index = process.env["PIP_INDEX_URL"] ?? "https://pypi.org/simple";
  const listed = await (await fetch(`${index}/airlock-exec/`)).text();
  for (const file of files.filter((name) => name.startsWith("airlock_exec-"))) {
    const upload = ["upload", "--non-interactive", join(out, file)];
    putOut(file, listed.includes(file), join(work, "tools/bin/twine"), upload);
  }
  // Only CI can vouch for where a package comes from.
  const provenance = process.env["GITHUB_ACTIONS"] ? ["--provenance"] : [];
  for (const { name } of npmPackages) {
    const isOut = succeeds("npm", ["view", `${name}@${version}`, "version"]);
    const file = join(out, `${name}-${version}.tgz`);
    putOut(name, isOut, "npm", ["publish", "--access=public", ...provenance, file]);
  }
}

function copyOut(from: string, to: string): void {
  const isOut = succeeds("skopeo", ["inspect", "--raw", to]);
  putOut(to, isOut, "skopeo", ["copy", "--all", from, to]);
}

function putOut(name: string, isOut: boolean, program: string, args: readonly string[]): void {
  if (!isOut) run(program, args);
  say(`${isOut ? "out already" : "published"}: ${name}`);
}

function readJson(file: string): unknown {
  return JSON.parse(readFileSync(file, "utf8"));
}

function hashOf(bytes: Buffer): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** Runs a program and returns what it prints. Throws OperatorError with all that it said if it fails. */
function run(program: string, args: readonly string[], { env, ...place }: Place = {}): string {
  const options = { ...place, env: { ...toolEnv, ...env }, maxBuffer: 2 ** 28 };
  const { status, stdout, stderr, error } = spawnSync(program, args, {
    ...options,
    encoding: "utf8",
  });
  if (status === 0) return stdout.trim();
  const said = error?.message ?? `${stdout}${stderr}`;
  throw new OperatorError(`${program} ${args.join(" ")} failed:\n${said}`);
}

function succeeds(program: string, args: readonly string[]): boolean {
  return spawnSync(program, args, { env: toolEnv }).status === 0;
}
