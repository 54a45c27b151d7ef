import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type BuildStep, parseDockerfile } from "../../shared/dockerfile.ts";
import type { Engine } from "../engine/engine.ts";
import type { PipConfig } from "../packages/proxy.ts";
import { InstallError } from "../sandbox/job.ts";
import { labels } from "../sandbox/sandbox.ts";
import { openBuildWorld, pipSteps, printAnswer, soon } from "../testing/agent-world.ts";
import {
  certificateFor,
  debianWith,
  npmWith,
  sdistBytes,
  type Wheel,
} from "../testing/package-index.ts";
import { deriveImage, imageWithNpm, rawEngine, shell } from "../testing/raw-engine.ts";
import { runCode } from "../testing/run-code.ts";
import { BuildError, buildProfile, type ImageRequest } from "./build.ts";

const world = await openBuildWorld();
afterAll(() => world.close());

const stepsOf = (text: string) => parseDockerfile(text).steps;
const build = (text: string, changes: Partial<ImageRequest> = {}, pip: Partial<PipConfig> = {}) =>
  world.build(pip, { steps: stepsOf(text), ...changes });

/** What a container of these tests that builds now was made with. */
async function inspectBuilding() {
  const filters = { label: [`${labels.agentName}=${world.repository}`] };
  const [container] = await rawEngine.listContainers({ filters });
  // It may have ended meanwhile.
  return (
    container &&
    rawEngine
      .getContainer(container.Id)
      .inspect()
      .catch(() => undefined)
  );
}

describe("image build", () => {
  describe("a build from a folder of wheels", () => {
    let built: Awaited<ReturnType<typeof world.build>>;
    /** The bounds on files that the engine was asked for, and what it says of the container. */
    const bounds: unknown[] = [];
    let inspected: Awaited<ReturnType<typeof inspectBuilding>>;
    beforeAll(async () => {
      const create: Engine["create"] = (profile, signal) => {
        bounds.push((profile.HostConfig as { StorageOpt?: object }).StorageOpt);
        return world.engine.create(profile, signal);
      };
      const look = async () => (inspected ??= await inspectBuilding());
      const engine = { ...world.engine, create };
      built = await world.build(
        { findLinks: world.folder },
        {},
        { engine, onLog: () => void look() },
      );
    });

    test("makes an image on which code imports the package, without a network", async () => {
      const { digest, pythonVersion, log } = built;
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
      const { digest } = built;
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
      const { digest } = built;
      const changed = await shell(digest, "find / -xdev -newer /etc/hostname -type f; ls -A /tmp");
      expect(changed).not.toMatch(/\.whl|airlock-build/);
      const base = await rawEngine.getImage(world.image).inspect();
      const layers = (await rawEngine.getImage(digest).inspect()).RootFS.Layers ?? [];
      expect(layers.slice(0, -1)).toEqual(base.RootFS.Layers);
    });

    test("uses no more of its host than it is given", () => {
      expect(inspected?.HostConfig).toMatchObject({
        PidsLimit: 1024,
        Memory: 2 * 1024 ** 3,
        MemorySwap: 2 * 1024 ** 3,
        NanoCpus: 1e9,
      });
    });

    test("has a bound on its files, unless the engine refuses one", () => {
      expect(bounds[0]).toEqual({ size: String(20 * 1024 ** 3) });
      // This engine may have taken the bound, or refused it.
      expect(bounds.slice(1)).toEqual(bounds.length === 1 ? [] : [undefined]);
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
        .build({ indexUrl }, { steps: pipSteps("no-such-package==9") })
        .catch((error: InstallError) => error.message);
      expect(failure).toMatch(
        /^Step 1 of 1 \(pip: no-such-package==9\) ended with exit code 1: ERROR: .*\nERROR: No matching distribution found for no-such-package==9$/,
      );
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

    test.each(["robot:hunter2secret", "hunter2secret"])(
      "keeps npm's %s out of log, image and history, and from a tenant's build",
      async (credentials) => {
        const { origin } = await registry({ credentials });
        const npmRegistry = origin.replace("//", `//${credentials}@`);
        const npm = { kind: "npm" as const, packages: ["airlock-npm"] };
        const { digest, log } = await world.build({ npmRegistry }, { baseImage, steps: [npm] });
        const failures = await Promise.all(
          [{ packages: ["nowhere"] }, { own: true as const }].map((more) =>
            world.build({ npmRegistry }, { baseImage, steps: [{ ...npm, ...more }] }).then(
              () => "built",
              (error: Error) => error.message,
            ),
          ),
        );
        expect(failures.join()).toMatch(/E404.*E401/s);
        const image = rawEngine.getImage(digest);
        const told = JSON.stringify([log, failures, await image.inspect(), await image.history()]);
        const search = `cat /opt/node/node_modules/airlock-npm/index.js
          grep -rlsE 'hunter2secret|${Buffer.from(credentials).toString("base64")}' / --exclude-dir=proc --exclude-dir=sys || true`;
        expect(await shell(digest, search)).toBe("module.exports = 42;");
        expect(told).not.toContain("hunter2secret");
      },
    );

    test("a tenant's packages of Python and npm are installed by a user without rights, for its code alone", async () => {
      const { url, origin } = await registry();
      const own = true as const;
      const pip = { indexUrl: url, aptMirror: origin, npmRegistry: origin };
      const asked = {
        baseImage,
        tenant: "acme",
        steps: [
          { kind: "apt" as const, packages: ["airlock-deb=1.0"], own },
          { kind: "pip" as const, packages: ["airlock_probe"], own },
          { kind: "npm" as const, packages: ["airlock-npm@^1"], own },
        ],
      };
      const { digest } = await world.build(pip, asked);
      const seen = await shell(
        digest,
        `find / -xdev -name 'airlock?probe.py' -user nobody; ls -ld /opt/airlock /opt/node/node_modules/airlock-npm | cut -d' ' -f3
         python3 -c 'import airlock_probe' 2>&1 | tail -1; cat /opt/airlock-deb`,
      );
      expect(seen).toMatch(
        /^\/opt\/airlock\/lib\/python3\.\d+\/site-packages\/airlock_probe\.py\nnobody\nnobody\nModuleNotFoundError: .*\nfrom the mirror$/,
      );
      const code = `${printAnswer}; import subprocess; subprocess.run(["python3", "-c", "${printAnswer}"])`;
      expect((await runCode({ engine: world.engine, image: digest }, code)).out).toBe("42\n42\n");
      const { Config } = await rawEngine.getImage(digest).inspect();
      expect(Config.Labels["io.airlock.tenant"]).toBe("acme");
      // A second time its steps are there, but not for another tenant.
      const again = { ...asked, fresh: false };
      const stepsDone = async (tenant: string) =>
        (await world.build(pip, { ...again, tenant })).log.match(/done before/g)?.length ?? 0;
      expect([await stepsDone("acme"), await stepsDone("other")]).toEqual([3, 0]);
    });

    test("a tenant's package can neither run code while it is installed nor replace a program", async () => {
      const sdists: Record<string, Buffer> = {};
      const wheels: Wheel[] = [];
      const index = await world.serve({ sdists, wheels });
      const { origin } = new URL(index.url);
      const file = "airlock_evil-1.0.tar.gz";
      const source = `import urllib.request\nurllib.request.urlopen("${origin}/ran").read()\n`;
      sdists[file] = sdistBytes("airlock_evil", "1.0", source);
      const requires = [`airlock-evil @ ${origin}/files/${file}`];
      const scripts = "[console_scripts]\n/usr/local/bin/python3 = a:b\n";
      const files = { "airlock_script-1.0.dist-info/entry_points.txt": scripts };
      const common = { version: "1.0", source: "" };
      wheels.push({ ...common, name: "airlock_front", requires });
      wheels.push({ ...common, name: "airlock_script", files });
      const attempt = async (name: string) => {
        const steps = [{ kind: "pip" as const, packages: [name], own: true as const }];
        const made = world.build({ indexUrl: index.url }, { tenant: "acme", steps });
        return made.then(
          () => "built",
          (error: Error) => error.message,
        );
      };
      expect(await attempt("airlock-evil")).toContain("No matching distribution found");
      expect(await attempt("airlock-front")).toContain("only wheels are installed");
      expect(await attempt("airlock-script")).toContain("Permission denied");
      expect(index.requests).toContain(`/files/${file}`);
      expect(index.requests).not.toContain("/ran");
    });

    test("a tenant's images take no more of a host than its limit", async () => {
      const limits = { ...world.limits, tenantBytes: 1 };
      const steps = [{ kind: "pip" as const, packages: ["airlock_probe"], own: true as const }];
      const build = world.build({ findLinks: world.folder }, { tenant: "full", steps, limits });
      await expect(build).rejects.toThrow(
        /^Images of tenant full would take \d+ bytes of the agent's host, and may take 1: /,
      );
    });

    test.concurrent.each<[string, BuildStep, RegExp]>([
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
      "HTTP Error 403: 169.254.169.254:80 has a private address: add it to the agent's pip_hosts",
    ]);
  });
});

describe("builds with a dockerfile", () => {
  test("commands, files and settings become part of the image; USER and WORKDIR do not", async () => {
    const { digest, log } = await build(`ARG WHO=world
ENV GREETING="hello $WHO" PATH=/opt/bin:$PATH
COPY --chmod=755 <<'EOF' /opt/bin/greet
#!/bin/sh
echo "$GREETING"
EOF
WORKDIR /srv/of/nobody
RUN greet > greeting && chown nobody . && echo $WHO $HOME
USER nobody
RUN <<EOF
#!/usr/bin/env python3
import os
open("who", "w").write(f"{os.getuid()} {os.environ['HOME']} {os.environ['GREETING']}\\n")
EOF
LABEL org.example.note="a \\"b\\""
EXPOSE 80`);
    expect(log).toContain("[5/9] dockerfile line 8: RUN greet > greeting");
    expect(log).toContain("world /root\n");
    expect(log).toContain("dockerfile line 16: EXPOSE is skipped: it has no meaning for jobs");
    const shown =
      'id -u; pwd; cd /srv/of/nobody; cat greeting who; stat -c "%U %a" . /opt/bin/greet';
    expect(await shell(digest, shown)).toBe(
      "0\n/\nhello world\n65534 /nonexistent hello world\nnobody 755\nroot 755\n",
    );
    const { Config, RootFS } = await rawEngine.getImage(digest).inspect();
    expect(Config.Env).toContain("GREETING=hello world");
    expect(Config.Env.join()).not.toContain("WHO");
    expect(Config.Labels["org.example.note"]).toBe('a "b"');
    const base = await rawEngine.getImage(world.image).inspect();
    expect(RootFS.Layers).toHaveLength(base.RootFS.Layers!.length + 3);
  });

  test("a command has the rights that it needs to set up an image, and no others", async () => {
    const rights: unknown[] = [];
    const create: Engine["create"] = (profile, signal) => {
      rights.push((profile.HostConfig as { CapAdd?: string[] }).CapAdd);
      return world.engine.create(profile, signal);
    };
    const tries = `RUN <<'EOF'
#!/usr/bin/env python3
import os, socket, subprocess, urllib.request
def outcome(act):
    try: print(act())
    except OSError as error: print(type(error).__name__, error)
print([line for line in open("/proc/self/status") if line.startswith(("CapBnd", "CapEff", "NoNew"))])
print(subprocess.run(["mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode > 0)
outcome(lambda: os.mknod("/sda", 0o60600, os.makedev(8, 0)))
outcome(lambda: open("/proc/sys/kernel/hostname", "w"))
outcome(lambda: os.kill(1, 0))
outcome(lambda: socket.create_connection(("1.1.1.1", 80), 2))
outcome(lambda: urllib.request.urlopen("http://169.254.169.254/"))
os.chroot("/srv")
EOF
`;
    const steps = [...pipSteps("airlock_probe"), ...stepsOf(tries)];
    const engine = { ...world.engine, create };
    const { log } = await world.build({ findLinks: world.folder }, { steps }, { engine });
    const few = ["CHOWN", "DAC_OVERRIDE", "FOWNER"];
    const more = ["SETUID", "SETGID", "FSETID", "KILL", "SYS_CHROOT", "SETFCAP"];
    // The first create call may be refused for its bound on files, and repeated.
    expect(rights.slice(-2)).toEqual([few, [...few, ...more]]);
    expect(log.slice(log.indexOf("['Cap")).trim().split("\n")).toEqual([
      "['CapEff:\\t00000000800400fb\\n', 'CapBnd:\\t00000000800400fb\\n', 'NoNewPrivs:\\t1\\n']",
      "True",
      "PermissionError [Errno 1] Operation not permitted",
      "OSError [Errno 30] Read-only file system: '/proc/sys/kernel/hostname'",
      "None",
      "OSError [Errno 101] Network is unreachable",
      "HTTPError HTTP Error 403: 169.254.169.254:80 may not be reached while packages are installed (pip_hosts)",
    ]);
  });

  test("a command that writes into the installer's stream fails its own build, and says which steps run no more", async () => {
    const forge = async (word: string): Promise<void> => {
      const forges = `RUN <<'EOF'
#!/usr/bin/env python3
word = b'${word}'
open("/proc/1/fd/1", "wb", 0).write(b"P" + len(word).to_bytes(4, "big") + word)
EOF
`;
      const seen: number[] = [];
      const onStep = (step: number): void => void seen.push(step);
      const built = build(forges, { onStep });
      await expect(built).rejects.toThrow(BuildError);
      await expect(built).rejects.toThrow("wrote into the installer's own stream");
      expect(seen).toEqual([1]);
    };
    await Promise.all(['{"step": 77}', '{"python_version": 1}', "none"].map(forge));
  });

  test("processes that a command leaves are reaped", async () => {
    const leaves = `RUN <<'EOF'
for n in $(seq 300); do (setsid true &); done
until ! grep -qs '^State:.Z' /proc/[0-9]*/status; do sleep 0.1; done
EOF
`;
    await expect(build(leaves)).resolves.toHaveProperty("digest");
  });

  test("a command cannot read the password of the index, neither around itself nor in its parent", async () => {
    const index = await world.serve({ credentials: "robot:hunter2secret" });
    const indexUrl = index.url.replace("//", "//robot:hunter2secret@");
    const search = `RUN env > /env; ls -R /tmp > /files
RUN <<'EOF'
#!/usr/bin/env python3
found = 0
with open("/proc/1/mem", "rb", 0) as memory:
    for line in open("/proc/1/maps"):
        area, rights = line.split()[:2]
        start, end = (int(number, 16) for number in area.split("-"))
        if rights.startswith("rw"):
            memory.seek(start)
            found += memory.read(end - start).count(b"hunter2" + b"secret")
print("found", found)
EOF
`;
    const steps = [...pipSteps("airlock_probe"), ...stepsOf(search)];
    const { digest, log } = await build("", { steps }, { indexUrl });
    expect(log).toContain("found 0\n");
    const told = await shell(digest, "cat /env /files");
    expect(told).toContain("https_proxy=http://127.0.0.1:");
    expect(told).not.toMatch(/hunter2secret|airlock-build/);
    const image = rawEngine.getImage(digest);
    const inspected = JSON.stringify([await image.inspect(), await image.history()]);
    expect(inspected).not.toMatch(/hunter2secret|127\.0\.0\.1:\d/);
  });

  describe("begins behind the steps that succeeded before", () => {
    /** Of this test alone. */
    const own = randomUUID();
    const plain = `RUN : ${own}`;
    const wheel = { name: "a.whl", path: "/dev/null", sizeBytes: 0, changedMs: 1 };
    const containersOf = (log: string): number => log.split(/^\[.*(?<!done before\))$/m).length - 1;

    test("after a failure, which names the line; not if it is to be fresh", async () => {
      const broken = build(`RUN : ${own}\nRUN fasle`, { fresh: false });
      await expect(broken).rejects.toThrow(BuildError);
      await expect(broken).rejects.toThrow(
        /^Step 2 of 2 \(dockerfile line 2: RUN fasle\) ended with exit code 127: .*fasle: not found$/,
      );
      const mended = `# Its lines stand elsewhere.\nRUN : ${own}\nRUN echo done`;
      const { log } = await build(mended, { fresh: false });
      expect(log).toContain(`[1/2] dockerfile line 2: RUN : ${own} (done before)`);
      expect(containersOf(log)).toBe(1);
      expect(containersOf((await build(mended, { fresh: false })).log)).toBe(0);
      expect(containersOf((await build(mended, { fresh: true })).log)).toBe(2);
    });

    test.concurrent.each<[string, string, Partial<ImageRequest>]>([
      ["another command before it", `RUN echo\nRUN : ${own}`, {}],
      ["another variable", `ARG A=1\nRUN : ${own}`, {}],
      ["another user", `USER nobody\nRUN : ${own}`, {}],
      ["other settings of pip", plain, { env: { PIP_NO_INDEX: "1" } }],
      ["another wheel", plain, { files: [wheel] }],
      ["another wheel of the same name and size", plain, { files: [{ ...wheel, changedMs: 2 }] }],
    ])("not with %s", async (_, text, changes) => {
      expect((await build(text, { ...changes, fresh: false })).log).not.toContain("done before");
    });
  });

  test("fails after the step that made the image larger than the operator allows", async () => {
    const limits = { ...world.limits, diskBytes: 2 * 1024 ** 2 };
    const grown = build("RUN true\nRUN head -c 4M /dev/urandom > /large", { limits });
    await expect(grown).rejects.toThrow(
      /^The build has added 4\d{6} bytes to its base image, more than the agent's max_built_bytes \(2097152\)\.$/,
    );
    expect(await world.engine.imageId(world.made.at(-1)!, soon())).toBeNull();
  });

  test.concurrent.each([
    ["RUN exit 3", "RUN exit 3) ended with exit code 3: it said nothing"],
    [
      "USER nobody\nRUN touch /x",
      "ended with exit code 1: touch: cannot touch '/x': Permission denied",
    ],
    ["USER who\nRUN true", `ended with exit code 1: USER who: the image has no such user`],
    ["COPY <<A /etc\nA", "COPY /etc) ended with exit code 1: the file was not written: [Errno 21]"],
  ])("%j fails with what it said", async (text, message) => {
    await expect(build(text)).rejects.toThrow(message);
  });
});

describe("failed builds", () => {
  describe("a build that fails", () => {
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
    test("ends by itself if its agent is killed", async () => {
      const { engine } = world;
      const request = await world.requestFor({ indexUrl: "http://127.0.0.1:9/" });
      const profile = buildProfile(
        { ...request, image: request.baseImage, layer: [], isLast: true, baseBytes: 0 },
        { boundsDisk: false },
      );
      const id = await engine.create(profile, soon());
      try {
        const stream = await engine.attach(id, soon());
        await engine.start(id, soon());
        const steps = request.steps.map((step) => ({ ...step, number: 1, head: "" }));
        stream.write(`${JSON.stringify({ ...request, steps, files: [] })}\n`);
        // pip asks for a connection, which nobody gives it.
        await once(stream, "data", { signal: soon() });
        stream.destroy();
        await expect(engine.wait(id, soon())).resolves.toBeUndefined();
      } finally {
        await engine.remove(id, soon());
      }
    });

    test("ends at once when it is cancelled, and leaves nothing", async () => {
      const index = await world.serve({ wheels: [] });
      const stop = new AbortController();
      let used: string[] = [];
      const onLog = () =>
        void inspectBuilding().then((found) => {
          used = found?.Mounts.map(({ Name }) => Name ?? "") ?? [];
          stop.abort(new Error("enough"));
        });
      const failure = world.build({ indexUrl: index.url }, {}, { onLog, signal: stop.signal });
      await expect(failure).rejects.toThrow("enough");
      expect(used).toHaveLength(1);
      const left = await rawEngine.listVolumes();
      expect(left.Volumes.map(({ Name }) => Name)).not.toContain(used[0]);
    });
  });
});
