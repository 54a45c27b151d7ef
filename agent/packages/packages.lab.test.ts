import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { fromPypi } from "../../scripts/testing/test-service.ts";
import {
  api,
  bundlesInVolume,
  cached,
  indexOf,
  MiB,
  name,
  nextResult,
  offer,
  probe,
  run,
  startForking,
  told,
  untilRunning,
  useWorld,
  wheel,
} from "../testing/agent-world.ts";
import { testEngine } from "../testing/engine.ts";
import { pipConfig } from "../testing/fakes.ts";
import { closeAll, problems } from "../testing/package-index.ts";
import { runCode } from "../testing/run-code.ts";
import { certificatesName, createPackageProxy, readRuntimeSource } from "./proxy.ts";

describe("package cache", () => {
  useWorld();
  test("the least recently used bundles go first; one in use stays and can still be imported from", async () => {
    const index = await indexOf({ wheels: ["a", "b", "c", "d"].map((letter) => wheel(letter, 4)) });
    await startForking(index, { ...cached, AIRLOCK_DEPENDENCY_CACHE_BYTES: String(13 * MiB) });
    const lazy = `
import signal, sys
def end(*_):
    import airlock_a
    print(airlock_a.n, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
signal.pause()`;
    const user = offer({ code: lazy, requirements: ["airlock-a"] });
    await api.request("/started", 1);
    const printing = (letter: string) =>
      run({ code: "print(1)", requirements: [`airlock-${letter}`] });
    for (const letter of "bcd") expect(told(await printing(letter))).toEqual(["succeeded", "1\n"]);
    await vi.waitFor(async () => expect(await bundlesInVolume(name)).toHaveLength(3), 240_000);
    expect((await printing("d")).timing.dep_install_ms).toBe(0);
    expect((await printing("b")).timing.dep_install_ms).toBeGreaterThan(0);
    api.cancel.push(user.lease_id);
    api.wake();
    expect(told(await nextResult())).toEqual(["cancelled", "42\n"]);
  });

  test("a bundle over the bound is refused with the key to raise, and leaves nothing", async () => {
    const index = await indexOf({ wheels: [probe, wheel("a", 12)] });
    await startForking(index, { ...cached, AIRLOCK_DEPENDENCY_CACHE_BYTES: String(10 * MiB) });
    const report = await run({ requirements: ["airlock-a"] });
    expect(report).toMatchObject({ status: "failed", error: { type: "dependency_error" } });
    expect(report.error?.message).toContain("10 MiB");
    expect(report.error?.message).toContain("raise its dependency_cache_bytes");
    expect(report.timing.dep_install_ms).toBeGreaterThan(0);
    expect(told(await run())).toEqual(["succeeded", "42\n"]);
    expect(await bundlesInVolume(name)).toHaveLength(1);
  });

  // Unpacking takes long enough for the kill.
  test.each([
    ["install-", 1],
    ["unpack-", 64],
  ])(
    "an agent that is killed while its container %s… runs leaves nothing of the bundle",
    async (kind, mebibytes) => {
      const opens = Promise.withResolvers<void>();
      const index = await indexOf({ wheels: [wheel("a", mebibytes)], opens: opens.promise });
      const first = await startForking(index, cached);
      // The files of the image have to be there: these are unpacked, too.
      expect(told(await run({ code: "print(1)", requirements: [] }))).toEqual(["succeeded", "1\n"]);
      offer({ code: "import airlock_a; print(airlock_a.n)", requirements: ["airlock-a"] });
      await vi.waitFor(() => expect(index.requests.length).toBeGreaterThan(0), 240_000);
      if (kind === "unpack-") opens.resolve();
      await untilRunning(kind);
      first.process.kill("SIGKILL");
      await first.exit;
      opens.resolve();
      await startForking(index, cached);
      const report = await run({
        code: "import airlock_a; print(airlock_a.n)",
        requirements: ["airlock-a"],
      });
      expect(told(report)).toEqual(["succeeded", "42\n"]);
      expect(await bundlesInVolume(name)).toEqual([expect.stringMatching(/^[0-9a-f]{32}$/)]);
    },
  );
});

describe("package store", () => {
  useWorld();
  beforeEach(() =>
    startForking(undefined, {
      ...cached,
      ...fromPypi,
      AIRLOCK_DEPENDENCY_CACHE_BYTES: String(16 * 1024 ** 3),
    }),
  );

  /** Code that works with the packages; it prints "ok". */
  const sets: readonly (readonly [requirements: string, code: string])[] = [
    [
      "numpy pandas matplotlib scipy scikit-learn pillow openpyxl pyarrow",
      `
import io, matplotlib, numpy, openpyxl, pandas, pyarrow, scipy.stats, sklearn.linear_model
from PIL import Image
matplotlib.use("agg")
import matplotlib.pyplot as plot
frame = pandas.DataFrame({"x": numpy.arange(100.0)})
frame["y"] = 2 * frame.x + 1
assert round(scipy.stats.pearsonr(frame.x, frame.y)[0], 6) == 1
assert round(sklearn.linear_model.LinearRegression().fit(frame[["x"]], frame.y).coef_[0], 6) == 2
frame.to_excel("/tmp/a.xlsx"); frame.to_parquet("/tmp/a.parquet")
assert pandas.read_excel("/tmp/a.xlsx").y.sum() == pandas.read_parquet("/tmp/a.parquet").y.sum()
plot.plot(frame.x, frame.y); plot.savefig("/tmp/a.png")
print("ok" if Image.open("/tmp/a.png").size[0] > 0 else "no")`,
    ],
    [
      "torch",
      "import torch\nprint('ok' if (torch.ones(100, 100) @ torch.ones(100, 100)).sum() == 1e6 else 'no')",
    ],
  ];

  test.each(sets)(
    "%s work under the default limits",
    async (names, code) => {
      const requirements = names.split(" ");
      for (const n of [1, 2]) {
        const report = await run({ code, requirements, startup_timeout_s: 1200, timeout_s: 120 });
        const { status, stdout_base64, stderr_base64 } = report;
        const said = Buffer.from(stdout_base64 || stderr_base64, "base64").toString();
        expect([status, said]).toEqual(["succeeded", "ok\n"]);
        expect(report.timing.dep_install_ms > 0).toBe(n === 1);
      }
    },
    1_500_000,
  );
});

describe("mirror", () => {
  afterEach(closeAll);

  test("PyPI behind a mirror with a private address serves requirements if its hosts are named", async () => {
    const caFile = process.env["SSL_CERT_FILE"] ?? "/etc/ssl/certs/ca-certificates.crt";
    const { pipEnv, reach, certificates } = await readRuntimeSource(
      pipConfig({ caFile, hosts: ["pypi.org", "files.pythonhosted.org"] }),
    );
    const from = {
      pipEnv,
      files: { [certificatesName]: certificates ?? new Uint8Array() },
      serve: createPackageProxy(reach, (words) => problems.push(words)),
      keep: null,
      maxBytes: null,
    };
    const packages = { requirements: ["idna==3.10"], from };
    const code = "import idna; print(idna.__version__)";
    const run = await runCode(await testEngine(), code, { spec: { packages: "memory" }, packages });
    expect({ out: run.out, problems }).toEqual({ out: "3.10\n", problems: [] });
  });
});
