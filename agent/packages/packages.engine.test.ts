import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readdir, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterEach, describe, expect, test } from "vitest";
import { waitUntil } from "../../shared/testing/test-file.ts";
import type { PackageRequest } from "../sandbox/job.ts";
import { labels } from "../sandbox/sandbox.ts";
import {
  cached as withCache,
  code,
  folder,
  indexOf,
  printed,
  probe,
  run,
  startForking,
  useWorld,
} from "../testing/agent-world.ts";
import { testEngine } from "../testing/engine.ts";
import {
  certificateFor,
  closeAll,
  failure,
  open,
  openIndex,
  type PackageIndex,
  pipFrom,
  problems,
  wheel,
  writeWheels,
} from "../testing/package-index.ts";
import { deriveImage, rawEngine, removeImages } from "../testing/raw-engine.ts";
import { runCode } from "../testing/run-code.ts";

describe("requirements", () => {
  useWorld();
  /** An agent whose jobs have containers of their own. */
  const start = (env: Record<string, string>) =>
    startForking(undefined, { AIRLOCK_CONTAINER_BACKEND: "engine", ...env });

  test("a job's packages are installed before it runs, and the timing says how long that took", async () => {
    await start({ AIRLOCK_PIP_INDEX_URL: (await indexOf()).url });
    const report = await run();
    expect([report.status, printed(report)]).toEqual(["succeeded", "42\n"]);
    const { startup_ms, dep_install_ms, execution_ms, total_ms } = report.timing;
    expect(dep_install_ms).toBeGreaterThan(100);
    expect(startup_ms).toBeGreaterThanOrEqual(dep_install_ms);
    expect(total_ms).toBeGreaterThanOrEqual(startup_ms + execution_ms);
    expect(execution_ms).toBeLessThan(dep_install_ms);
    const other = await run({
      requirements: [],
      code: "import importlib.util as u; print(u.find_spec('airlock_probe'))",
    });
    expect([printed(other), other.timing.dep_install_ms]).toEqual(["None\n", 0]);
  });

  describe("an agent whose configuration does not allow it", () => {
    test("installs nothing, and says whose configuration forbids it", async () => {
      const index = await indexOf();
      await start({
        AIRLOCK_PIP_INDEX_URL: index.url,
        AIRLOCK_ALLOW_RUNTIME_REQUIREMENTS: "false",
      });
      const report = await run();
      expect(report).toMatchObject({
        status: "failed",
        error: {
          type: "config_error",
          message: expect.stringContaining(
            "allow_runtime_requirements is false in its own",
          ) as string,
          phase: "startup",
        },
      });
      expect(index.requests).toEqual([]);
    });

    test("checks again that requirements are names", async () => {
      await start({ AIRLOCK_PIP_INDEX_URL: (await indexOf()).url });
      const report = await run({ requirements: ["airlock-probe", "--index-url http://x"] });
      expect(report.error).toMatchObject({
        type: "dependency_error",
        message: `requirements.1 is not a package's name: "--index-url http://x"`,
      });
    });
  });

  test("a package that cannot be installed is reported in pip's words, with what could not be reached", async () => {
    const index = await indexOf({
      redirects: { "/simple/airlock-meta/": "http://169.254.169.254/" },
    });
    await start({ AIRLOCK_PIP_INDEX_URL: index.url });
    const report = await run({ requirements: ["airlock-meta==1"] });
    expect(report).toMatchObject({
      status: "failed",
      exit_code: null,
      error: { type: "dependency_error", phase: "startup" },
      timing: { phase_at_exit: "startup", execution_ms: 0 },
    });
    expect(report.timing.dep_install_ms).toBeGreaterThan(100);
    expect(report.error?.message).toMatch(/No matching distribution found for airlock-meta==1/);
    expect(report.error?.message).toContain(
      "What could not be reached: 169.254.169.254:80 has a private address: add it to the agent's pip_hosts.",
    );
    expect((await run()).status).toBe("succeeded");
  });

  test("an installation longer than startup_timeout is a startup timeout, whatever the code's timeout", async () => {
    const index = await indexOf({ opens: new Promise(() => {}) });
    await start({ AIRLOCK_PIP_INDEX_URL: index.url });
    const report = await run({ startup_timeout_s: 8, timeout_s: 1 });
    expect(report).toMatchObject({
      status: "timeout",
      exit_code: null,
      error: {
        type: "startup_timeout",
        message: "The requirements were not installed within 8 s (startup_timeout).",
        phase: "startup",
      },
      timing: { phase_at_exit: "startup" },
    });
    expect(report.timing.startup_ms).toBeGreaterThanOrEqual(8000);
  });

  describe("packages come", () => {
    test("from a folder of the agent's host, without any index", async () => {
      writeWheels(folder, probe);
      await start({ AIRLOCK_PIP_FIND_LINKS: folder });
      expect(printed(await run())).toBe("42\n");
      const missing = await run({ requirements: ["airlock-missing"] });
      expect(missing.error?.message).toContain("No matching distribution found");
    });

    test("from an index with a password and a private certificate, and the code sees neither", async () => {
      const { image } = await testEngine();
      const tls = await certificateFor("localhost", image);
      const index = await indexOf({ tls, credentials: "me:secret" });
      await writeFile(join(folder, "ca.pem"), tls.cert);
      const url = index.url.replace("https://127.0.0.1", "https://me:secret@localhost");
      await start({ AIRLOCK_PIP_INDEX_URL: url, AIRLOCK_PIP_CA_FILE: join(folder, "ca.pem") });
      const reader = `
import os
print(open("/input/_requirements.txt").read().strip(), "secret" in str(dict(os.environ)), os.listdir("/packages"))
${code}
`;
      expect(printed(await run({ code: reader }))).toBe("airlock-probe False ['lib']\n42\n");
    });
  });

  describe("with enable_runtime_dependency_cache", () => {
    const cached = (index: PackageIndex) => ({
      AIRLOCK_PIP_INDEX_URL: index.url,
      ...withCache,
      AIRLOCK_DEPENDENCY_CACHE_DIR: join(folder, "cache"),
    });
    const entries = async () =>
      (await readdir(join(folder, "cache"))).filter((file) => file.endsWith(".packages"));

    test("the next job with the same requirements installs nothing and needs no index", async () => {
      const files = { "large.txt": "x".repeat(8_000_000) };
      const index = await indexOf({ wheels: [{ ...probe, files }] });
      await start(cached(index));
      const first = await run({ requirements: ["airlock-probe >= 1", "airlock_probe"] });
      index.close();
      const second = await run({ requirements: ["Airlock.Probe", "airlock-probe>=1"] });
      expect([first, second].map((report) => [report.status, printed(report)])).toEqual([
        ["succeeded", "42\n"],
        ["succeeded", "42\n"],
      ]);
      expect(first.timing.dep_install_ms).toBeGreaterThan(100);
      expect(second.timing.dep_install_ms).toBe(0);
      const refused = [
        await run({ requirements: ["airlock-probe"] }),
        await run({ requirements: ["Airlock.Probe", "airlock-probe>=1"], tenant: "other" }),
      ];
      expect(refused.map(({ error }) => error?.type)).toEqual([
        "dependency_error",
        "dependency_error",
      ]);
    });

    test("hostile 33: no code can change the packages of the next job", async () => {
      const index = await indexOf();
      await start(cached(index));
      const poison = `
import os, sys
import airlock_probe
tried = 0
for folder, folders, names in os.walk("/packages"):
    for path in [folder + "/" + name for name in names] + [folder]:
        for act in (lambda: open(path, "w"), lambda: os.unlink(path), lambda: os.chmod(path, 0o777),
                    lambda: os.rename(path, path + "x"), lambda: open(path + "/evil.py", "w"),
                    lambda: os.symlink("/tmp", path + "/evil")):
            tried += 1
            try:
                act()
            except OSError:
                continue
            print("done", path)
airlock_probe.n = 13
print(tried > 50)
`;
      expect(printed(await run({ code: poison }))).toBe("True\n");
      expect(printed(await run({ code: poison }))).toBe("True\n");
      const last = await run();
      expect([printed(last), last.timing.dep_install_ms]).toEqual(["42\n", 0]);
    });

    test("a failed installation is not kept, and each index has its own", async () => {
      const index = await indexOf();
      const first = await start(cached(index));
      expect((await run({ requirements: ["airlock-missing"] })).status).toBe("failed");
      expect(await entries()).toEqual([]);
      await run();
      first.process.kill("SIGTERM");
      await first.exit;
      const other = await indexOf({ wheels: [{ ...probe, source: "n = 43\n" }] });
      await start(cached(other));
      expect(printed(await run())).toBe("43\n");
      expect(await entries()).toHaveLength(2);
    });
  });
});

describe("install failure", async () => {
  const { engine, image } = await testEngine();
  afterEach(closeAll);

  /** A server on another port of the index's host, which nobody may reach. */
  async function bystander() {
    const requests: string[] = [];
    const server = createServer(({ url }, response) => {
      requests.push(url ?? "");
      response.end();
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    open.push(server);
    return { requests, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
  }

  const runBare = (packages: PackageRequest) =>
    runCode({ engine, image }, "", { spec: { packages: "memory" }, packages });

  describe("pip fails in its own words, and nothing else is reached", () => {
    const install = async (index: PackageIndex, ...requirements: string[]): Promise<string> =>
      failure(runBare({ requirements, from: await pipFrom(index) }));

    test("an index that sends pip elsewhere", async () => {
      const other = await bystander();
      const index = await openIndex({
        redirects: {
          "/simple/airlock-meta/": "http://169.254.169.254/latest/meta-data/",
          "/simple/airlock-other/": `${other.url}/simple/airlock-other/`,
          "/simple/airlock-name/": `${other.url.replace("127.0.0.1", "localhost")}/`,
        },
        wheels: [
          wheel("airlock_front", "", { requires: [`x @ ${other.url}/x-1.0-py3-none-any.whl`] }),
        ],
      });
      for (const name of ["airlock-meta", "airlock-other", "airlock-name", "airlock-front"]) {
        problems.length = 0;
        expect(await install(index, name)).toMatch(/^InstallError/);
        expect(problems.join()).toMatch(/has a private address|may not be reached/);
      }
      expect(other.requests).toEqual([]);
    });

    test("an index that is down", async () => {
      const index = await openIndex({});
      index.close();
      expect(await install(index, "airlock-probe")).toContain("No matching distribution found");
      expect(problems.join()).toContain("ECONNREFUSED");
    });

    test("an image without pip", async () => {
      const bare = await deriveImage(
        image,
        "rm -rf /usr/lib/python3*/dist-packages/pip /usr/local/lib/python3*/site-packages/pip",
      );
      try {
        const from = await pipFrom(await openIndex({}));
        const words = await failure(
          runCode({ engine, image: bare }, "", {
            spec: { packages: "memory" },
            packages: { requirements: ["x"], from },
          }),
        );
        expect(words).toContain("the image has no pip");
      } finally {
        await removeImages(bare);
      }
    });
  });

  /** What a shell in the one container of an agent prints. */
  async function askInside(agentName: string, script: string): Promise<string> {
    const [found] = await engine.list(labels.agentName, agentName, AbortSignal.timeout(60_000));
    const exec = await rawEngine
      .getContainer(found?.id ?? "")
      .exec({ Cmd: ["sh", "-c", script], AttachStdout: true, Tty: true });
    return (await text(await exec.start({ Tty: true }))).replaceAll("\r", "");
  }

  const rightsOfPip = `
for process in /proc/[0-9]*; do
  tr '\\0' ' ' <$process/cmdline | grep -q -- '[-]-only-binary' && grep -E '^(Uid|Cap|NoNew)' $process/status
done`;

  test("pip is root without capabilities; if it is given up, it ends with its container", async () => {
    const index = await openIndex({ opens: new Promise(() => {}) });
    const packages = { requirements: ["airlock-probe"], from: await pipFrom(index) };
    const giveUp = new AbortController();
    const agentName = `packages-${randomUUID()}`;
    const settings = {
      agentName,
      packages,
      installSignal: giveUp.signal,
      spec: { packages: "memory" as const },
    };
    const run = runCode({ engine, image }, "", settings);
    run.catch(() => {});
    await waitUntil("pip asks the index", () => index.requests.length > 0);
    const none = "0".repeat(16);
    const sets = ["Inh", "Prm", "Eff", "Bnd", "Amb"].map((set) => `Cap${set}:\t${none}\n`);
    expect(await askInside(agentName, rightsOfPip)).toBe(
      `Uid:\t0\t0\t0\t0\n${sets.join("")}NoNewPrivs:\t1\n`,
    );
    giveUp.abort(new Error("given up"));
    await expect(run).rejects.toThrow("given up");
  });
});
