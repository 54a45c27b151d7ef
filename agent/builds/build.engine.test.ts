import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { BuildStep } from "../../shared/wire/leases.ts";
import type { Engine } from "../engine/engine.ts";
import { InstallError } from "../sandbox/job.ts";
import { labels } from "../sandbox/sandbox.ts";
import { openBuildWorld, pipSteps, printAnswer, soon } from "../testing/agent-world.ts";
import { certificateFor, debianWith, npmWith, sdistBytes } from "../testing/package-index.ts";
import { deriveImage, imageWithNpm, rawEngine, shell } from "../testing/raw-engine.ts";
import { runCode } from "../testing/run-code.ts";
import { buildProfile, makeImage } from "./build.ts";

describe("image build", async () => {
  const world = await openBuildWorld();
  afterAll(() => world.close());

  describe("a build from a folder of wheels", () => {
    test("makes an image on which code imports the package, without a network", async () => {
      const { digest, pythonVersion, log } = await world.build({ findLinks: world.folder });
      expect(digest).toMatch(/^sha256:[0-9a-f]{64}$/);
      expect(log).toMatch(
        /^\[1\/1\] pip: airlock_probe\n[^]*Successfully installed airlock_probe-1.2.0/,
      );
      const { out, end, report } = await runCode(
        { engine: world.engine, image: digest },
        printAnswer,
        { spec: { preload: ["airlock_probe"] } },
      );
      expect({ out, end }).toEqual({ out: "42\n", end: "succeeded - 0" });
      expect(report.stderr.length).toBe(0);
      expect(`${pythonVersion}\n`).toBe(
        await shell(digest, "python3 -c 'import platform; print(platform.python_version())'"),
      );
    });

    test("names and labels the image, and does not inherit a label that would mislead", async () => {
      const { digest } = await world.build({ findLinks: world.folder });
      const { Id, RepoTags, Config } = await rawEngine.getImage(digest).inspect();
      expect(Id).toBe(digest);
      expect(RepoTags.sort()).toEqual([`${world.repository}:latest`, `${world.repository}:v1.2.3`]);
      expect(Config.Labels).toMatchObject({
        "io.airlock.job-type": "science",
        "io.airlock.version": "v1.2.3",
        "io.airlock.steps": expect.stringMatching(/^[0-9a-f]{64}$/) as string,
      });
      const standIn = await world.engine.labelledImageId(
        "io.airlock.stands-in-for",
        "python:3.13-slim",
        AbortSignal.timeout(60_000),
      );
      expect(standIn).not.toBe(digest);
      for (const name of Object.values(labels)) expect(Config.Labels[name] ?? "").toBe("");
    });

    test("leaves only the package in the image: one layer, without the build's files", async () => {
      const { digest } = await world.build({ findLinks: world.folder });
      const changed = await shell(digest, "find / -xdev -newer /etc/hostname -type f; ls -A /tmp");
      expect(changed).not.toMatch(/\.whl|airlock-build/);
      const base = await rawEngine.getImage(world.image).inspect();
      const layers = (await rawEngine.getImage(digest).inspect()).RootFS.Layers ?? [];
      expect(layers.slice(0, -1)).toEqual(base.RootFS.Layers);
    });

    test("works with a base image that has an entry point, a user, and a Python that Debian manages (PEP 668)", async () => {
      const odd = await deriveImage(
        world.image,
        `touch "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')/EXTERNALLY-MANAGED"`,
        ['ENTRYPOINT ["false"]', "USER 1000"],
      );
      world.made.push(odd);
      const { digest } = await world.build({ findLinks: world.folder }, { baseImage: odd });
      expect((await runCode({ engine: world.engine, image: digest }, printAnswer)).out).toBe(
        "42\n",
      );
    });

    test("fails if it takes more memory than the host's operator allows", async () => {
      const memoryBytes = 32 * 1024 * 1024;
      const failing = world.build(
        { findLinks: world.folder },
        { limits: { ...world.limits, memoryBytes } },
      );
      await expect(failing).rejects.toThrow(InstallError);
    });

    test("installs nothing if there is nothing to install", async () => {
      const { digest, log } = await world.build({}, { steps: [] });
      expect(log).toBe("");
      expect((await runCode({ engine: world.engine, image: digest }, "print(1)")).out).toBe("1\n");
    });
  });

  describe("a build from an index", () => {
    test("installs from an index on the agent's loopback, without a network", async () => {
      const index = await world.serve();
      const { digest } = await world.build({ indexUrl: index.url });
      expect((await runCode({ engine: world.engine, image: digest }, printAnswer)).out).toBe(
        "42\n",
      );
      expect(index.requests).toContain("/simple/airlock-probe/");
    });

    test("trusts the certificates of pip_ca_file, and without them refuses the index", async () => {
      const name = "localhost";
      const tls = await certificateFor(name, world.image);
      const index = await world.serve({ tls });
      const indexUrl = index.url.replace("127.0.0.1", name);
      const caFile = join(world.folder, "own-ca.pem");
      writeFileSync(caFile, tls.cert);
      const { digest } = await world.build({ indexUrl, caFile });
      expect((await runCode({ engine: world.engine, image: digest }, printAnswer)).out).toBe(
        "42\n",
      );
      expect(await shell(digest, "find / -xdev -name ca.pem")).toBe("");

      const failure = world.build({ indexUrl });
      await expect(failure).rejects.toThrow(
        /certificate verify failed.*\nERROR: No matching dist/s,
      );
    });

    test("keeps the index's credentials out of log, image and history", async () => {
      const index = await world.serve({ credentials: "robot:hunter2secret" });
      const indexUrl = index.url.replace("//", "//robot:hunter2secret@");
      const { digest, log } = await world.build({ indexUrl });
      const failure: unknown = await world
        .build({ indexUrl }, { steps: pipSteps("nowhere") })
        .catch(String);
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

  describe("a build of packages of other kinds", () => {
    const registry = async (more: object = {}) => {
      const others = debianWith("airlock-deb", "from the mirror");
      const served = await world.serve({ others, ...more });
      const { origin } = new URL(served.url);
      Object.assign(others, npmWith("airlock-npm", "module.exports = 42;", origin));
      return { ...served, origin };
    };

    /** The base image with npm, and with the test's mirror as its source of packages. */
    let baseImage: string;
    let ca: string;
    beforeAll(async () => {
      const source = "deb [trusted=yes] http://deb.debian.org/debian test/";
      const script = `rm -rf /etc/apt/sources.list.d; echo '${source}' > /etc/apt/sources.list`;
      [baseImage, { cert: ca }] = await Promise.all([
        imageWithNpm(world.image, script),
        certificateFor("localhost", world.image),
      ]);
      world.made.push(baseImage);
    });

    test("installs Debian's, Python's and npm's packages from their mirrors, a step each", async () => {
      const { url, origin } = await registry();
      const steps: number[] = [];
      const caFile = join(world.folder, "one-ca.pem");
      writeFileSync(caFile, ca);
      const { digest, log } = await world.build(
        { indexUrl: url, aptMirror: origin, npmRegistry: origin, caFile },
        {
          baseImage,
          steps: [
            { kind: "apt", packages: ["airlock-deb=1.0"] },
            ...pipSteps("airlock_probe"),
            { kind: "npm", packages: ["airlock-npm@^1"] },
          ],
          onStep: (step) => steps.push(step),
        },
      );
      expect(steps).toEqual([1, 2, 3]);
      expect(log.match(/^\[.*$/gm)).toEqual([
        "[1/3] apt: airlock-deb=1.0",
        "[2/3] pip: airlock_probe",
        "[3/3] npm: airlock-npm@^1",
      ]);
      const seen = await shell(
        digest,
        `export NO_COLOR=1; cat /opt/airlock-deb; echo; mkdir /code; cd /code
         echo 'import n from "airlock-npm"; console.log(n, process.version)' > a.mjs; node a.mjs
         echo 'const n: number = require("airlock-npm"); console.log(n)' > a.ts; node a.ts
         python3 -c 'import airlock_probe; print(airlock_probe.answer)'
         ls -A /var/lib/apt/lists /var/cache/apt /tmp`,
      );
      expect(seen).toBe(
        `from the mirror\n42 ${process.version}\n42\n42\n/tmp:\n\n/var/cache/apt:\n\n/var/lib/apt/lists:\n`,
      );
      // The new layer has neither the certificate nor an address on the way to a mirror, but the package's text.
      const search = (words: string, where = "/") =>
        shell(digest, `grep -rlF '${words}' ${where} --exclude-dir=proc --exclude-dir=sys || true`);
      expect(await search("from the mirror")).toBe("/opt/airlock-deb\n");
      expect(await search(ca.split("\n")[1]!)).toBe("");
      expect(await search("http://127.0.0.1", "/etc /root /var /usr/local")).toBe("");
      const { Config } = await rawEngine.getImage(digest).inspect();
      expect(JSON.stringify(Config)).not.toMatch(/airlock-build|127\.0\.0\.1|_proxy/i);
    });

    test.each<[string, BuildStep, RegExp]>([
      [
        "of a package that Debian does not have",
        { kind: "apt", packages: ["nowhere"] },
        /^Step 1 of 1 \(apt: nowhere\) ended with exit code 100: E: Unable to locate package nowhere$/,
      ],
      [
        "of a package that npm does not have",
        { kind: "npm", packages: ["nowhere"] },
        /^Step 1 of 1 \(npm: nowhere\) ended with exit code 1: npm error code E404\nnpm error 404 /,
      ],
    ])("fails because %s in its tool's words", async (_what, step, words) => {
      const { origin } = await registry();
      const failure = world.build(
        { aptMirror: origin, npmRegistry: origin },
        { baseImage, steps: [step] },
      );
      await expect(failure).rejects.toThrow(words);
    });

    test("fails without apt-get, and says so", async () => {
      const bare = await deriveImage(world.image, "rm $(which apt-get)");
      world.made.push(bare);
      const steps: BuildStep[] = [...pipSteps("airlock_probe"), { kind: "apt", packages: ["jq"] }];
      await expect(
        world.build({ findLinks: world.folder }, { baseImage: bare, steps }),
      ).rejects.toThrow(
        "Step 2 of 2 (apt: jq) ended with exit code 1: E: the image of job type science has no apt-get, which apt needs (Debian, Ubuntu)",
      );
    });
  });

  test("a build has no network and reaches everything through the agent", async () => {
    const sdists: Record<string, Buffer> = {};
    const index = await world.serve({ wheels: [], sdists });
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
    const failure = world.build({ indexUrl: index.url }, { steps: pipSteps("airlock_odd") });
    await expect(failure).rejects.toThrow(InstallError);
    const told = index.requests.find((path) => path.startsWith("/told/")) ?? "";
    expect(decodeURIComponent(told).replace("/told/", "").split("|")).toEqual([
      "lo",
      "[Errno 101] Network is unreachable",
      "[Errno 101] Network is unreachable",
      "HTTP Error 403: 169.254.169.254:80 is not on the internet (pip_hosts)",
    ]);
  });
});

describe("failed builds", async () => {
  const world = await openBuildWorld();
  afterAll(() => world.close());

  describe("a build that fails", () => {
    test("reports in pip's words what is missing, and makes no image", async () => {
      const failure = world.build(
        { findLinks: world.folder },
        { steps: pipSteps("no-such-package==9") },
      );
      await expect(failure).rejects.toThrow(InstallError);
      await expect(failure).rejects.toThrow(
        /^Step 1 of 1 \(pip: no-such-package==9\) ended with exit code 1: ERROR: .*\nERROR: No matching distribution found for no-such-package==9$/,
      );
    });

    test("never passes a requirement as an option", async () => {
      const failure = world.build({ findLinks: world.folder }, { steps: pipSteps("--version") });
      await expect(failure).rejects.toThrow(/Invalid requirement: '?--version/);
    });

    test("says that a base image has no pip", async () => {
      const bare = await deriveImage(
        world.image,
        `rm -r "$(python3 -c 'import pip; print(*pip.__path__)')"`,
      );
      world.made.push(bare);
      const failure = world.build({ findLinks: world.folder }, { baseImage: bare });
      await expect(failure).rejects.toThrow("No module named pip");
    });

    test("says that a base image has no Python", async () => {
      const bare = await deriveImage(world.image, "rm $(which -a python3)");
      world.made.push(bare);
      const failure = world.build({ findLinks: world.folder }, { baseImage: bare });
      await expect(failure).rejects.toMatchObject({ code: "command_not_found", transient: false });
    });
  });

  describe("a build", () => {
    test("uses no more of its host than it is given", async () => {
      const request = await world.requestFor({ findLinks: world.folder });
      const seen = Promise.withResolvers<unknown>();
      const onLog = () =>
        void hostConfig().then((config) => config && seen.resolve(config), seen.reject);
      const made = makeImage(world.engine, request, onLog, soon());
      expect(await seen.promise).toMatchObject({
        PidsLimit: 1024,
        Memory: 2 * 1024 ** 3,
        MemorySwap: 2 * 1024 ** 3,
        NanoCpus: 1e9,
      });
      await made;
    });

    test("has a bound on its files, unless the engine refuses one", async () => {
      const asked: unknown[] = [];
      const create: Engine["create"] = (profile, signal) => {
        const { StorageOpt } = profile.HostConfig as { StorageOpt?: object };
        asked.push(StorageOpt);
        return world.engine.create(profile, signal);
      };
      const request = await world.requestFor({ findLinks: world.folder });
      const { digest } = await makeImage({ ...world.engine, create }, request, () => {}, soon());
      world.made.push(digest);
      expect(asked[0]).toEqual({ size: String(20 * 1024 ** 3) });
      // This engine may have taken the bound, or refused it.
      expect(asked.slice(1)).toEqual(asked.length === 1 ? [] : [undefined]);
    });

    test("ends by itself if its agent is killed", async () => {
      const { engine } = world;
      const request = await world.requestFor({ indexUrl: "http://127.0.0.1:9/" });
      const id = await engine.create(buildProfile(request, { boundsDisk: false }), soon());
      try {
        const stream = await engine.attach(id, soon());
        await engine.start(id, soon());
        const steps = request.steps.map((step) => ({ ...step, head: "" }));
        stream.write(`${JSON.stringify({ ...request, steps, files: [] })}\n`);
        // pip asks for a connection, which nobody gives it.
        await once(stream, "data", { signal: soon() });
        stream.destroy();
        await engine.wait(id, soon());
      } finally {
        await engine.remove(id, soon());
      }
      expect(await world.containers()).toEqual([]);
    });

    test("ends at once when it is cancelled, and leaves nothing", async () => {
      const index = await world.serve({ wheels: [] });
      const request = await world.requestFor({ indexUrl: index.url });
      const stop = new AbortController();
      let used: string[] = [];
      const onLog = () =>
        void volumes().then((names) => {
          used = names;
          stop.abort(new Error("enough"));
        });
      await expect(makeImage(world.engine, request, onLog, stop.signal)).rejects.toThrow("enough");
      expect(used).toHaveLength(1);
      const left = await rawEngine.listVolumes();
      expect(left.Volumes.map(({ Name }) => Name)).not.toContain(used[0]);
      expect(await world.containers()).toEqual([]);
    });
  });

  async function findContainers() {
    const filters = { label: [`${labels.agentName}=${world.repository}`] };
    return rawEngine.listContainers({ filters });
  }

  /** Names of the volumes of the containers that build now. */
  async function volumes(): Promise<string[]> {
    return (await findContainers()).flatMap(({ Mounts }) => Mounts.map(({ Name }) => Name ?? ""));
  }

  /** What the container that builds now was made with. */
  async function hostConfig(): Promise<object | undefined> {
    const [container] = await findContainers();
    return container && (await rawEngine.getContainer(container.Id).inspect()).HostConfig;
  }
});
