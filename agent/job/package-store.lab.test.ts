import { beforeEach, expect, test } from "vitest";
import { fromPypi } from "../../scripts/testing/builds.ts";
import { cached, run, start, useWorld } from "../testing/package-world.ts";

useWorld();
beforeEach(() =>
  start(undefined, {
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
