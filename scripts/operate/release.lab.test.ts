import { execFile, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { buffer } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { testEngine } from "../../agent/testing/engine.ts";
import { rawEngine, removeImages } from "../../agent/testing/raw-engine.ts";
import { reservePort } from "../../api/testing/reserve-port.ts";
import { listen } from "../../shared/testing/http.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { registryProgram } from "../setup/tools.ts";
import { makeServiceBase } from "../testing/machine.ts";
import { needs } from "../testing/needs.ts";
import { testedRef } from "./command.ts";

const version = "9.8.7";
const base = `airlock-release-base-${process.pid}`;
/** What the command says with Docker's own builder; else what buildx says. */
const notForIt =
  /the image for \w+ is one for \w+: docker build needs|docker build --platform=linux\/(amd|arm)64/;
const repository = "https://github.com/Someone/airlock";

type Ended = { code: number | null; said: string };

describe("npm run release", needs("root", "docker", "venv", "skopeo", "docker-registry"), () => {
  /** A copy of the working tree, as a commit; here, where hard links to node_modules are possible. */
  let folder: string;
  const git = (...args: string[]): string => {
    const who = ["-c", "user.name=test", "-c", "user.email=test@localhost"];
    return execFileSync("git", [...who, ...args], { cwd: folder, encoding: "utf8" }).trim();
  };
  const edit = (file: string, change: (text: string) => string): void =>
    writeFileSync(join(folder, file), change(readFileSync(join(folder, file), "utf8")));

  beforeAll(async () => {
    mkdirSync("out", { recursive: true });
    folder = mkdtempSync(resolve("out/test-"));
    const listed = ["ls-files", "-co", "--exclude-standard"];
    const files = execFileSync("git", listed, { encoding: "utf8" }).trim().split("\n");
    for (const file of files) cpSync(file, join(folder, file));
    symlinkSync(resolve("node_modules"), join(folder, "node_modules"));
    const { version: now } = JSON.parse(readFileSync("package.json", "utf8")) as {
      version: string;
    };
    edit("package.json", (text) =>
      text.replace('"repository": ""', `"repository": "${repository}"`),
    );
    for (const file of [
      "package.json",
      "package-lock.json",
      "clients/typescript/package.json",
      "clients/cli/package.json",
      "clients/python/src/airlock/__init__.py",
      "api/version.ts",
    ])
      edit(file, (text) => text.replace(`"${now}"`, `"${version}"`));
    edit("packaging/chart/Chart.yaml", (text) => text.replaceAll(now, version));
    for (const place of ["", "clients/typescript/", "clients/cli/", "clients/python/"])
      edit(`${place}CHANGELOG.md`, (text) => text.replace(/^## .+$/m, `## ${version}`));
    edit(".gitignore", (text) => `${text}/node_modules\n`);
    utimesSync(join(folder, "package-lock.json"), 0, 0);
    git("init", "--quiet");
    git("add", "--all");
    git("commit", "--quiet", "--message=All", "--date=2026-01-02T03:04:05Z");
    await makeServiceBase(rawEngine, (await testEngine()).image, base);
  }, 600_000);
  afterAll(async () => {
    rmSync(folder, { recursive: true, force: true });
    const ours = ["", "-amd64", "-arm64"].map((end) => `airlock:${version}${end}`);
    await removeImages(...ours, base);
  });

  /** Runs the command where binfmt_misc has these emulators alone: the base is of this machine's platform. */
  async function release(
    args: string[],
    env: Record<string, string> = {},
    emulators: string[] = [],
  ): Promise<Ended> {
    const place = "/proc/sys/fs/binfmt_misc";
    const files = emulators.map((name) => `touch ${place}/${name} &&`).join(" ");
    const script = `mount -t tmpfs none ${place} && ${files} exec sh scripts/run scripts/operate/release.ts "$@"`;
    const child = execFile("unshare", ["--mount", "sh", "-c", script, "sh", ...args], {
      cwd: folder,
      env: { ...process.env, AIRLOCK_BASE: base, GITHUB_ACTIONS: "", ...env },
    });
    let said = "";
    for (const stream of [child.stdout, child.stderr])
      stream?.on("data", (text: string) => (said += text));
    const [code] = (await once(child, "close")) as [number | null];
    return { code, said };
  }

  test("names each file that states another version, a tree with changes, tests that have not passed, and CI that may not say which job it is", async () => {
    const other = await release(["9.9.9"]);
    expect(other.said).toContain(`clients/python/src/airlock/__init__.py (${version})`);
    expect(other.said.match(/\(9\.8\.7\)/g)).toHaveLength(11);
    expect((await release([version])).said).toContain("the tests of HEAD have not passed here");
    writeFileSync(join(folder, "new.txt"), "");
    expect(await release([version])).toMatchObject({
      code: 1,
      said: expect.stringContaining("?? new.txt") as string,
    });
    rmSync(join(folder, "new.txt"));
    const unknown = { GITHUB_ACTIONS: "true", ACTIONS_ID_TOKEN_REQUEST_URL: "" };
    expect((await release([version, "--publish"], unknown)).said).toContain("`id-token: write`");
  });

  test(
    "makes equal files twice, from whose packages jobs run, and publishes what is not out",
    { timeout: 1_800_000 },
    async () => {
      git("update-ref", testedRef, "HEAD");
      await using packages = await startPackageRegistry();
      await using images = await startImageRegistry(join(folder, ".git/images"));
      const env = { ...packages.env, ...images.env };
      const first = await release([version, "--publish"], env);
      expect(first.said).toMatch(
        /left out: the image for (amd|arm)64, for which binfmt_misc needs /,
      );
      expect(first.said).toContain("the image ran a job of each package");
      expect(first).toEqual({ code: 0, said: first.said });
      const sums = readFileSync(join(folder, "out/SHA256SUMS"), "utf8");
      expect(sums.match(/ \S+$/gm)!.map((name) => name.trim())).toEqual([
        `airlock-${version}-image.tar`,
        `airlock-exec-${version}.tgz`,
        `airlock-exec-cli-${version}.tgz`,
        `airlock_exec-${version}-py3-none-any.whl`,
        `airlock_exec-${version}.tar.gz`,
        `airlock-${version}.tgz`,
        "sbom.cdx.json",
      ]);
      execFileSync("sha256sum", ["--check", "SHA256SUMS"], { cwd: join(folder, "out") });
      expect([...packages.files].toSorted()).toEqual([
        `airlock-exec-${version}.tgz`,
        `airlock-exec-cli-${version}.tgz`,
        `airlock_exec-${version}-py3-none-any.whl`,
        `airlock_exec-${version}.tar.gz`,
      ]);
      expect(packages.manifests.map(({ repository: its }) => its)).toEqual([
        { type: "git", url: `git+${repository}.git`, directory: "clients/typescript" },
        { type: "git", url: `git+${repository}.git`, directory: "clients/cli" },
      ]);
      expect(readdirSync(images.repositories)).toEqual(["airlock", "charts"]);

      const second = await release([version, "--publish"], env);
      expect(second.said.match(/out already: /g)).toHaveLength(6);
      expect(second.said).not.toContain("published: ");
      expect(readFileSync(join(folder, "out/SHA256SUMS"), "utf8")).toBe(sums);
    },
  );

  test("refuses an image that is not for its platform", { timeout: 900_000 }, async () => {
    git("update-ref", testedRef, "HEAD");
    const other = process.arch === "x64" ? "aarch64" : "x86_64";
    const { code, said } = await release([version], {}, [`qemu-${other}`]);
    expect({ code, said }).toEqual({ code: 1, said: expect.stringMatching(notForIt) as string });
  });
});

/** npm's and PyPI's registries, which have nothing but what is published here; all else is asked of the real ones. */
async function startPackageRegistry() {
  const files: string[] = [];
  const manifests: { repository?: object }[] = [];
  async function take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method, url = "" } = request;
    const body = await buffer(request);
    if (method === "PUT") {
      const { versions, _attachments } = JSON.parse(body.toString()) as {
        versions: Record<string, { repository?: object }>;
        _attachments: object;
      };
      files.push(...Object.keys(_attachments));
      manifests.push(versions[version]!);
      response.writeHead(201).end("{}");
    } else if (method === "POST") {
      const [, name = ""] = /filename="(.+?)"/.exec(body.toString("latin1")) ?? [];
      files.push(name);
      response.end();
    } else if (url === "/simple/airlock-exec/") {
      response.end(files.map((name) => `<a href="${name}">${name}</a>`).join());
    } else if (/^\/airlock-exec(-cli)?$/.test(url)) {
      const name = url.slice(1);
      const isOut = files.includes(`${name}-${version}.tgz`);
      const dist = { tarball: "http://127.0.0.1:1/none" };
      const versions = { [version]: { name, version, dist } };
      response.writeHead(isOut ? 200 : 404, { "Content-Type": "application/json" });
      response.end(JSON.stringify({ name, "dist-tags": { latest: version }, versions }));
    } else {
      const home = url.startsWith("/simple/") ? "https://pypi.org" : "https://registry.npmjs.org";
      response.writeHead(307, { Location: home + url }).end();
    }
  }
  const server = await listen(createServer((request, response) => void take(request, response)));
  const folder = tempFolder();
  writeFileSync(
    join(folder, "npmrc"),
    `registry=${server.url}/\n${server.url.slice(5)}/:_authToken=a-token\n`,
  );
  const env = {
    npm_config_userconfig: join(folder, "npmrc"),
    npm_config_registry: `${server.url}/`,
    PIP_INDEX_URL: `${server.url}/simple`,
    TWINE_REPOSITORY_URL: `${server.url}/legacy/`,
    TWINE_USERNAME: "a-user",
    TWINE_PASSWORD: "a-password",
  };
  return { env, files, manifests, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
}

/** A registry of images, which skopeo is told to speak to without TLS. */
async function startImageRegistry(folder: string) {
  const address = `127.0.0.1:${await reservePort()}`;
  const settings = {
    version: "0.1",
    storage: { filesystem: { rootdirectory: folder } },
    http: { addr: address },
  };
  const file = `${folder}.json`;
  const home = tempFolder();
  const trust = join(home, ".config/containers");
  mkdirSync(trust, { recursive: true });
  // JSON is YAML.
  writeFileSync(file, JSON.stringify(settings));
  writeFileSync(
    join(trust, "registries.conf"),
    `[[registry]]\nlocation = "${address}"\ninsecure = true\n`,
  );
  const child = spawn(registryProgram(), ["serve", file], { stdio: ["ignore", "ignore", "pipe"] });
  for await (const line of createInterface({ input: child.stderr }))
    if (line.includes("listening on")) break;
  child.stderr.resume();
  return {
    repositories: join(folder, "docker/registry/v2/repositories/someone"),
    env: {
      AIRLOCK_IMAGE: `${address}/someone/airlock`,
      HOME: home,
    },
    [Symbol.asyncDispose]: async () => {
      const ended = once(child, "exit");
      child.kill("SIGKILL");
      await ended;
    },
  };
}
