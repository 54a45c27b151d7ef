import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { InstallError } from "../sandbox/package-request.ts";
import { labels } from "../sandbox/labels.ts";
import { certificateFor } from "../sandbox/testing/package-index.ts";
import { deriveImage, rawEngine, shell } from "../sandbox/testing/raw-engine.ts";
import { runCode } from "../sandbox/testing/run-code.ts";
import { sdistBytes } from "../sandbox/testing/sdist.ts";
import { openBuildWorld, printAnswer } from "../testing/build-world.ts";

const world = await openBuildWorld();
afterAll(() => world.close());

describe("a build from a folder of wheels", () => {
  test("makes an image on which code imports the package, without a network", async () => {
    const { digest, pythonVersion, log } = await world.build({ findLinks: world.folder });
    expect(digest).toMatch(/^sha256:[0-9a-f]{64}$/);
    expect(log).toContain("Successfully installed airlock_probe-1.2.0");
    const { out, end, report } = await runCode(
      { engine: world.engine, image: digest },
      printAnswer,
      {
        spec: { preload: ["airlock_probe"] },
      },
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
      "io.airlock.requirements": expect.stringMatching(/^[0-9a-f]{64}$/) as string,
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
    expect((await runCode({ engine: world.engine, image: digest }, printAnswer)).out).toBe("42\n");
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
    const { digest, log } = await world.build({}, { requirements: [] });
    expect(log).toBe("");
    expect((await runCode({ engine: world.engine, image: digest }, "print(1)")).out).toBe("1\n");
  });
});

describe("a build from an index", () => {
  test("installs from an index on the agent's loopback, without a network", async () => {
    const index = await world.serve();
    const { digest } = await world.build({ indexUrl: index.url });
    expect((await runCode({ engine: world.engine, image: digest }, printAnswer)).out).toBe("42\n");
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
    expect((await runCode({ engine: world.engine, image: digest }, printAnswer)).out).toBe("42\n");
    expect(await shell(digest, "find / -xdev -name ca.pem")).toBe("");

    const failure = world.build({ indexUrl });
    await expect(failure).rejects.toThrow(/certificate verify failed.*\nERROR: No matching dist/s);
  });

  test("keeps the index's credentials out of log, image and history", async () => {
    const index = await world.serve({ credentials: "robot:hunter2secret" });
    const indexUrl = index.url.replace("//", "//robot:hunter2secret@");
    const { digest, log } = await world.build({ indexUrl });
    const failure: unknown = await world
      .build({ indexUrl }, { requirements: ["nowhere"] })
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
  const failure = world.build({ indexUrl: index.url }, { requirements: ["airlock_odd"] });
  await expect(failure).rejects.toThrow(InstallError);
  const told = index.requests.find((path) => path.startsWith("/told/")) ?? "";
  expect(decodeURIComponent(told).replace("/told/", "").split("|")).toEqual([
    "lo",
    "[Errno 101] Network is unreachable",
    "[Errno 101] Network is unreachable",
    "HTTP Error 403: 169.254.169.254:80 is not on the internet (pip_hosts)",
  ]);
});
