import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { ResultReport } from "../../shared/wire/agent/lease.ts";
import { removeContainersOf } from "../sandbox/testing/raw-engine.ts";
import { type AgentProcess, startAgent } from "../testing/agent-process.ts";
import { type FakeApi, startFakeApi } from "../testing/fake-api.ts";
import { testJob } from "../testing/test-agent.ts";

let api: FakeApi;
let folder: string;
let name: string;
let agent: AgentProcess;
beforeEach(async () => {
  api = await startFakeApi();
  folder = await mkdtemp(join(tmpdir(), "airlock-test-"));
  name = `test-${randomUUID()}`;
  agent = startAgent({
    AIRLOCK_API_URL: api.url,
    AIRLOCK_AGENT_NAME: name,
    AIRLOCK_DOCKER_HOST: process.env["AIRLOCK_DOCKER_HOST"],
    AIRLOCK_DATA_DIR: join(folder, "data"),
    AIRLOCK_CONTAINER_BACKEND: "zygote",
    AIRLOCK_WARM_POOL_SIZE: "0",
    AIRLOCK_ALLOW_RUNTIME_REQUIREMENTS: "true",
    AIRLOCK_ENABLE_RUNTIME_DEPENDENCY_CACHE: "true",
    AIRLOCK_DEPENDENCY_CACHE_BYTES: String(16 * 1024 ** 3),
    // PyPI, also where a proxy of this machine's has a private address and its own certificates.
    AIRLOCK_PIP_HOSTS: "pypi.org,files.pythonhosted.org",
    AIRLOCK_PIP_CA_FILE: process.env["SSL_CERT_FILE"] ?? "/etc/ssl/certs/ca-certificates.crt",
  });
  await agent.ready;
});
afterEach(async () => {
  agent.process.kill("SIGTERM");
  await agent.exit;
  await removeContainersOf(name);
  await api[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

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
      api.offer(testJob({ code, requirements, startup_timeout_s: 1200, timeout_s: 120 }));
      const { status, stdout_base64, stderr_base64, error, timing } = (
        await api.request("/result", n)
      ).json as ResultReport;
      const [out, err] = [stdout_base64, stderr_base64].map((text) =>
        Buffer.from(text, "base64").toString(),
      );
      const said = out || err;
      expect({ status, said, error }).toEqual({ status: "succeeded", said: "ok\n", error: null });
      expect(timing.dep_install_ms > 0).toBe(n === 1);
    }
  },
  1_500_000,
);
