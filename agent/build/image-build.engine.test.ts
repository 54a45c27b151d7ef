import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { createPackageProxy } from "../packages/proxy.ts";
import { type PipConfig, readPackageSource } from "../packages/source.ts";
import { buildProfile, type ImageRequest } from "../container/build-profile.ts";
import type { Engine } from "../container/engine.ts";
import { makeImage } from "./image-build.ts";
import { InstallError } from "../sandbox/package-request.ts";
import { buildLimits } from "../policy/policy.ts";
import { labels } from "../sandbox/profile.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import { certificateFor, type PackageIndex, startIndex } from "../sandbox/testing/package-index.ts";
import { deriveImage, rawEngine, removeImages, shell } from "../sandbox/testing/raw-engine.ts";
import { runCode } from "../sandbox/testing/run-code.ts";
import { sdistBytes } from "../sandbox/testing/sdist.ts";
import { writeWheels } from "../sandbox/testing/wheel.ts";

const probe = { name: "airlock_probe", version: "1.2.0", source: "answer = 42\n" };
const nothing: PipConfig = {
  indexUrl: undefined,
  findLinks: undefined,
  caFile: undefined,
  hosts: [],
  proxyUrl: undefined,
};
const repository = `airlock-test-${randomUUID()}`;
const limits = buildLimits({ agent_builds: true });
const owner = { agentId: randomUUID(), agentName: repository, leaseId: randomUUID() };

let engine: Engine;
let image: string;
let folder: string;
const made: string[] = [];
const indexes: PackageIndex[] = [];

beforeAll(async () => {
  ({ engine, image } = await testEngine());
  folder = mkdtempSync(join(tmpdir(), "airlock-build-"));
  writeWheels(folder, probe);
});
afterEach(() => {
  for (const index of indexes.splice(0)) index.close();
});
afterAll(async () => {
  const filters = { label: [`io.airlock.repository=${repository}`] };
  const left = await rawEngine.listImages({ filters });
  await removeImages(...made, ...left.map(({ Id }) => Id));
  rmSync(folder, { recursive: true });
});

async function sourceOf(pip: Partial<PipConfig>) {
  const { files, pipEnv, hosts } = await readPackageSource({ ...nothing, ...pip });
  return { files, pipEnv, serve: createPackageProxy({ ...hosts, files: [] }, () => {}) };
}

/** Builds, and checks that no container is left. */
async function build(pip: Partial<PipConfig>, request: Partial<ImageRequest> = {}) {
  const log: Uint8Array[] = [];
  try {
    const source = await sourceOf(pip);
    const result = await makeImage(
      engine,
      {
        ...source,
        baseImage: image,
        requirements: ["airlock_probe"],
        jobType: "science",
        repository,
        tags: ["v1.2.3", "latest"],
        owner,
        limits,
        ...request,
      },
      (bytes) => log.push(bytes),
      AbortSignal.timeout(60_000),
    );
    made.push(result.digest);
    return { ...result, log: Buffer.concat(log).toString("utf8") };
  } finally {
    expect(await engine.list(labels.agentName, repository, AbortSignal.timeout(60_000))).toEqual(
      [],
    );
  }
}

/** Names of the volumes of the containers that build now. */
async function volumes(): Promise<string[]> {
  const filters = { label: [`${labels.agentName}=${repository}`] };
  const containers = await rawEngine.listContainers({ filters });
  return containers.flatMap(({ Mounts }) => Mounts.map(({ Name }) => Name ?? ""));
}

/** What the container that builds now was made with. */
async function hostConfig(): Promise<object | undefined> {
  const filters = { label: [`${labels.agentName}=${repository}`] };
  const [container] = await rawEngine.listContainers({ filters });
  return container && (await rawEngine.getContainer(container.Id).inspect()).HostConfig;
}

const soon = (): AbortSignal => AbortSignal.timeout(60_000);
const printAnswer = "import airlock_probe; print(airlock_probe.answer)";

describe("from a folder of wheels", () => {
  test("makes an image on which code imports the package, without a network", async () => {
    const { digest, pythonVersion, log } = await build({ findLinks: folder });
    expect(digest).toMatch(/^sha256:[0-9a-f]{64}$/);
    expect(log).toContain("Successfully installed airlock_probe-1.2.0");
    const { out, end, report } = await runCode({ engine, image: digest }, printAnswer, {
      spec: { preload: ["airlock_probe"] },
    });
    expect({ out, end }).toEqual({ out: "42\n", end: "succeeded - 0" });
    expect(report.stderr.length).toBe(0);
    expect(`${pythonVersion}\n`).toBe(
      await shell(digest, "python3 -c 'import platform; print(platform.python_version())'"),
    );
  });

  test("names and labels the image, and does not inherit a label that would mislead", async () => {
    const { digest } = await build({ findLinks: folder });
    const { Id, RepoTags, Config } = await rawEngine.getImage(digest).inspect();
    expect(Id).toBe(digest);
    expect(RepoTags.sort()).toEqual([`${repository}:latest`, `${repository}:v1.2.3`]);
    expect(Config.Labels).toMatchObject({
      "io.airlock.job-type": "science",
      "io.airlock.version": "v1.2.3",
      "io.airlock.requirements": expect.stringMatching(/^[0-9a-f]{64}$/) as string,
    });
    const standIn = await engine.labelledImageId(
      "io.airlock.stands-in-for",
      "python:3.13-slim",
      AbortSignal.timeout(60_000),
    );
    expect(standIn).not.toBe(digest);
    for (const name of Object.values(labels)) expect(Config.Labels[name] ?? "").toBe("");
  });

  test("leaves only the package in the image: one layer, without the build's files", async () => {
    const { digest } = await build({ findLinks: folder });
    const changed = await shell(digest, "find / -xdev -newer /etc/hostname -type f; ls -A /tmp");
    expect(changed).not.toMatch(/\.whl|airlock-build/);
    const base = await rawEngine.getImage(image).inspect();
    const layers = (await rawEngine.getImage(digest).inspect()).RootFS.Layers ?? [];
    expect(layers.slice(0, -1)).toEqual(base.RootFS.Layers);
  });

  test("works with a Python that Debian manages (PEP 668)", async () => {
    const managed = await deriveImage(
      image,
      `touch "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')/EXTERNALLY-MANAGED"`,
    );
    made.push(managed);
    const { digest } = await build({ findLinks: folder }, { baseImage: managed });
    expect((await runCode({ engine, image: digest }, printAnswer)).out).toBe("42\n");
  });

  test("works with a base image that has an entry point and a user", async () => {
    const odd = await deriveImage(image, "true", ['ENTRYPOINT ["false"]', "USER 1000"]);
    made.push(odd);
    const { digest } = await build({ findLinks: folder }, { baseImage: odd });
    expect((await runCode({ engine, image: digest }, printAnswer)).out).toBe("42\n");
  });

  test("is limited to its number of processes", async () => {
    const failing = build({ findLinks: folder }, { limits: { ...limits, pids: 1 } });
    await expect(failing).rejects.toThrow(InstallError);
  });

  test("fails if it takes more memory than the host's operator allows", async () => {
    const memoryBytes = 32 * 1024 * 1024;
    const failing = build({ findLinks: folder }, { limits: { ...limits, memoryBytes } });
    await expect(failing).rejects.toThrow(InstallError);
  });

  test("installs nothing if there is nothing to install", async () => {
    const { digest, log } = await build({}, { requirements: [] });
    expect(log).toBe("");
    expect((await runCode({ engine, image: digest }, "print(1)")).out).toBe("1\n");
  });
});

async function serve(options: Partial<Parameters<typeof startIndex>[0]> = {}) {
  const index = await startIndex({ address: "127.0.0.1", wheels: [probe], ...options });
  indexes.push(index);
  return index;
}

describe("from an index", () => {
  test("installs from an index on the agent's loopback, without a network", async () => {
    const index = await serve();
    const { digest } = await build({ indexUrl: index.url });
    expect((await runCode({ engine, image: digest }, printAnswer)).out).toBe("42\n");
    expect(index.requests).toContain("/simple/airlock-probe/");
  });

  test("trusts the certificates of pip_ca_file, and without them refuses the index", async () => {
    const name = "localhost";
    const tls = await certificateFor(name, image);
    const index = await serve({ tls });
    const indexUrl = index.url.replace("127.0.0.1", name);
    const caFile = join(folder, "own-ca.pem");
    writeFileSync(caFile, tls.cert);
    const { digest } = await build({ indexUrl, caFile });
    expect((await runCode({ engine, image: digest }, printAnswer)).out).toBe("42\n");
    expect(await shell(digest, "find / -xdev -name ca.pem")).toBe("");

    const failure = build({ indexUrl });
    await expect(failure).rejects.toThrow(/certificate verify failed.*\nERROR: No matching dist/s);
  });

  test("keeps the index's credentials out of log, image and history", async () => {
    const index = await serve({ credentials: "robot:hunter2secret" });
    const indexUrl = index.url.replace("//", "//robot:hunter2secret@");
    const { digest, log } = await build({ indexUrl });
    const failure: unknown = await build({ indexUrl }, { requirements: ["nowhere"] }).catch(String);
    expect(failure).toContain("No matching distribution");
    expect(failure).not.toContain("hunter2secret");
    const inspected = JSON.stringify([
      await rawEngine.getImage(digest).inspect(),
      await rawEngine.getImage(digest).history(),
    ]);
    expect(inspected).not.toContain("hunter2secret");
    expect(log).toContain("airlock_probe");
    expect(log).not.toContain("hunter2secret");
    const search = "grep -rlsI hunter2secret / --exclude-dir=proc --exclude-dir=sys || true";
    expect(await shell(digest, search)).toBe("");
  });
});

test("a build has no network and reaches everything through the agent", async () => {
  const sdists: Record<string, Buffer> = {};
  const index = await serve({ wheels: [], sdists });
  const source = `
import socket, urllib.parse, urllib.request
def outcome(act):
    try: act()
    except OSError as error: return str(error)
found = [name for _, name in socket.if_nameindex()]
found += [outcome(lambda: socket.create_connection((host, 80), 2)) for host in ("1.1.1.1", "172.17.0.1")]
found += [outcome(lambda: urllib.request.urlopen("http://169.254.169.254/"))]
urllib.request.urlopen("${new URL(index.url).origin}/told/" + urllib.parse.quote("|".join(found)))`;
  sdists["airlock_odd-1.0.tar.gz"] = sdistBytes("airlock_odd", "1.0", source);
  const failure = build({ indexUrl: index.url }, { requirements: ["airlock_odd"] });
  await expect(failure).rejects.toThrow(InstallError);
  const told = index.requests.find((path) => path.startsWith("/told/")) ?? "";
  expect(decodeURIComponent(told).replace("/told/", "").split("|")).toEqual([
    "lo",
    "[Errno 101] Network is unreachable",
    "[Errno 101] Network is unreachable",
    "HTTP Error 403: 169.254.169.254:80 is not on the internet (pip_hosts)",
  ]);
});

describe("that cannot be made", () => {
  test("reports in pip's words what is missing, and makes no image", async () => {
    const failure = build({ findLinks: folder }, { requirements: ["no-such-package==9"] });
    await expect(failure).rejects.toThrow(InstallError);
    await expect(failure).rejects.toThrow(
      "ERROR: No matching distribution found for no-such-package==9",
    );
  });

  test("never passes a requirement as an option", async () => {
    const failure = build({ findLinks: folder }, { requirements: ["--version"] });
    await expect(failure).rejects.toThrow(/Invalid requirement: '?--version/);
  });

  test("says that a base image has no pip", async () => {
    const bare = await deriveImage(
      image,
      `rm -r "$(python3 -c 'import pip; print(*pip.__path__)')"`,
    );
    made.push(bare);
    const failure = build({ findLinks: folder }, { baseImage: bare });
    await expect(failure).rejects.toThrow("No module named pip");
  });

  test("says that a base image has no Python", async () => {
    const bare = await deriveImage(image, "rm $(which -a python3)");
    made.push(bare);
    const failure = build({ findLinks: folder }, { baseImage: bare });
    await expect(failure).rejects.toMatchObject({ code: "command_not_found", transient: false });
  });

  test("uses no more of its host than it is given", async () => {
    const source = await sourceOf({ findLinks: folder });
    const seen = Promise.withResolvers<unknown>();
    const onLog = () =>
      void hostConfig().then((config) => config && seen.resolve(config), seen.reject);
    const request = { ...source, baseImage: image, requirements: ["airlock_probe"] };
    const names = { jobType: "science", repository, tags: ["v1.2.3"] };
    const made = makeImage(engine, { ...request, ...names, owner, limits }, onLog, soon());
    expect(await seen.promise).toMatchObject({
      PidsLimit: 1024,
      Memory: 2 * 1024 ** 3,
      MemorySwap: 2 * 1024 ** 3,
      NanoCpus: 1e9,
    });
    await made;
  });

  test("ends by itself if its agent is killed", async () => {
    const source = await sourceOf({ indexUrl: "http://127.0.0.1:9/" });
    const request = { ...source, baseImage: image, requirements: ["airlock_probe"] };
    const names = { jobType: "science", repository, tags: ["v1.2.3"] };
    const profile = buildProfile({ ...request, ...names, owner, limits }, { boundsDisk: false });
    const id = await engine.create(profile, soon());
    try {
      const stream = await engine.attach(id, soon());
      await engine.start(id, soon());
      const { requirements, pipEnv } = { ...request };
      stream.write(`${JSON.stringify({ requirements, pip_env: pipEnv, files: [] })}\n`);
      // pip asks for a connection, which nobody gives it.
      await once(stream, "data", { signal: soon() });
      stream.destroy();
      await engine.wait(id, soon());
    } finally {
      await engine.remove(id, soon());
    }
    expect(await engine.list(labels.agentName, repository, soon())).toEqual([]);
  });

  test("ends at once when it is cancelled, and leaves nothing", async () => {
    const index = await serve({ wheels: [] });
    const stop = new AbortController();
    const source = await sourceOf({ indexUrl: index.url });
    const request = {
      ...source,
      baseImage: image,
      requirements: ["airlock_probe"],
      jobType: "science",
      repository,
      tags: ["latest"],
      owner,
      limits,
    };
    let used: string[] = [];
    const onLog = () =>
      void volumes().then((names) => {
        used = names;
        stop.abort(new Error("enough"));
      });
    await expect(makeImage(engine, request, onLog, stop.signal)).rejects.toThrow("enough");
    expect(used).toHaveLength(1);
    const left = await rawEngine.listVolumes();
    expect(left.Volumes.map(({ Name }) => Name)).not.toContain(used[0]);
    expect(await engine.list(labels.agentName, repository, AbortSignal.timeout(60_000))).toEqual(
      [],
    );
  });
});
