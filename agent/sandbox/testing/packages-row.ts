import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openSession } from "../session/session.ts";
import { startOnHost } from "./host-link.ts";
import type { PackageIndex } from "./package-index.ts";
import { closeAll, indexOf, pipFrom, wheel } from "./package-world.ts";
import type { Python } from "./find-python.ts";

const code = `
import subprocess, sys
import airlock_probe
at = [path.startswith("/packages") for path in sys.path]
images = [("-packages" in path and not path.startswith("/packages")) for path in sys.path]
print(airlock_probe.n, pth_ran, at.index(True) > sys.path.index("/code") and at.index(True) < images.index(True))
print(subprocess.check_output([sys.executable, "-c", "import airlock_probe as p; print(p.n, pth_ran)"]).decode())
`;

export function packagesRow(python: () => Python): void {
  const spoolRoot = mkdtempSync(join(tmpdir(), "airlock-packages-"));
  let index: PackageIndex;
  beforeAll(async () => {
    const files = { "airlock.pth": "import builtins; builtins.pth_ran = True\n" };
    const more = { requires: ["airlock-base"], files };
    index = await indexOf({
      wheels: [
        wheel("airlock_base", "n = 42\n"),
        wheel("airlock_probe", "from airlock_base import n\n", more),
      ],
    });
  });
  afterAll(() => {
    closeAll();
    rmSync(spoolRoot, { recursive: true });
  });

  test("installs packages, and finds them", async () => {
    const link = startOnHost(python());
    const signal = AbortSignal.timeout(60_000);
    const session = await openSession(link, signal);
    const from = await pipFrom(index);
    await session.install({ requirements: ["airlock-probe"], from }, signal);
    const caps = { streamBytes: 100_000, artifactBytes: 0 };
    const report = await session.run(
      { code, inputJson: "{}", timeoutMs: 20_000, caps },
      { signal, spoolDir: spoolRoot },
    );
    const [out, err] = [report.stdout, report.stderr].map((bytes) => Buffer.from(bytes).toString());
    expect([out, err]).toEqual(["42 True True\n42 True\n\n", ""]);
    link.destroy();
    await link.ended;
  });
}
