import { afterAll, beforeAll, expect, test } from "vitest";
import { openOnHost, text } from "./host-run.ts";
import { runIn } from "./run-code.ts";
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
  afterAll(closeAll);

  test("installs packages, and finds them", async () => {
    const { link, conversation } = await openOnHost({ python: python() });
    const from = await pipFrom(index);
    await conversation.install(
      { requirements: ["airlock-probe"], from },
      AbortSignal.timeout(60_000),
    );
    const report = await runIn(conversation, code);
    const [out, err] = [report.stdout, report.stderr].map(text);
    expect([out, err]).toEqual(["42 True True\n42 True\n\n", ""]);
    link.destroy();
    await link.ended;
  });
}
