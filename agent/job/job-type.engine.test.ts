import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import type { JobType } from "../../shared/wire/job-type.ts";
import type { LeasedJob, ResultReport } from "../../shared/wire/agent/lease.ts";
import {
  bridgeAddress,
  deriveImage,
  removeContainersOf,
  removeImages,
} from "../sandbox/testing/raw-engine.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import { type AgentProcess, startAgent } from "../testing/agent-process.ts";
import { type FakeApi, startFakeApi } from "../testing/fake-api.ts";
import { testJob } from "../testing/test-agent.ts";

/** What a job type says, seen from inside its containers. */

let api: FakeApi;
let agent: AgentProcess;
let folder: string;
let image: string;
let done = 0;
const name = `job-types-${process.pid}`;
const images: string[] = [];

beforeAll(async () => {
  ({ image } = await testEngine());
  api = await startFakeApi();
  folder = tempFolder();
  agent = startAgent({
    AIRLOCK_API_URL: api.url,
    AIRLOCK_AGENT_NAME: name,
    AIRLOCK_DOCKER_HOST: process.env["AIRLOCK_DOCKER_HOST"],
    AIRLOCK_SPOOL_DIR: folder,
  });
  await agent.ready;
});
afterAll(async () => {
  agent.process.kill("SIGTERM");
  await agent.exit;
  await removeContainersOf(name);
  await removeImages(...images);
  await api[Symbol.asyncDispose]();
});
beforeEach(() => {
  done = api.count("/result");
});

/** Runs code on a job type that differs from the default in this. */
async function run(
  jobType: Partial<JobType>,
  code: string,
  job: Partial<LeasedJob> = {},
): Promise<ResultReport & { out: string }> {
  const usual = testJob();
  api.offer({ ...usual, code, ...job, job_type: { ...usual.job_type, ...jobType } });
  const report = (await api.request("/result", ++done)).json as ResultReport;
  return { ...report, out: Buffer.from(report.stdout_base64, "base64").toString() };
}

/** The first of these control files that there is: cgroup v2, then v1. */
const readLimit = (...paths: string[]) =>
  `print(next(open(p).read() for p in ${JSON.stringify(paths)} if __import__("os").path.exists(p)))`;

test("memory_limit is the container's limit, and using more ends the code", async () => {
  const limit = readLimit(
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
  );
  const { out } = await run({ memory_limit: "64m" }, limit);
  expect(out.trim()).toBe(String(64 * 1024 * 1024));
  const allocate = "x = []\nwhile True: x.append(bytearray(1_000_000))";
  expect(await run({ memory_limit: "64m" }, allocate)).toMatchObject({ status: "oom" });
});

test("cpu_limit is the container's share of CPUs", async () => {
  const quota = readLimit("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  const { out } = await run({ cpu_limit: 0.5 }, quota);
  expect(Number(out.trim().split(/\s/)[0])).toBe(50_000);
});

test("env is what the code finds in its environment", async () => {
  const env = { GREETING: "good day = 'sir'\n", EMPTY: "" };
  const { out } = await run(
    { env },
    "import os; print([os.environ[n] for n in ('GREETING', 'EMPTY')])",
  );
  expect(out).toBe(`["good day = 'sir'\\n", '']\n`);
});

test("preload is imported before the job arrives, and the code finds the same module", async () => {
  const probe = await deriveImage(
    image,
    `echo 'import os; early = not os.path.exists("/code/main.py")' > "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/preloaded.py"`,
  );
  const code =
    "import sys; print('preloaded' in sys.modules); import preloaded; print(preloaded.early)";
  images.push(probe);
  const ahead = await run({ preload: ["preloaded"] }, code, { image: probe });
  expect(ahead.out).toBe("True\nTrue\n");
  expect((await run({}, code, { image: probe })).out).toBe("False\nFalse\n");
});

test("image is what the job runs on, by reference or by digest", async () => {
  const marked = await deriveImage(image, "echo marked > /marker");
  images.push(marked);
  const report = await run({}, "print(open('/marker').read())", { image: marked });
  expect(report).toMatchObject({ out: "marked\n\n", job_ref: `default@${marked}` });
});

test("a job whose built image is gone fails, with what to do", async () => {
  const report = await run({}, "print(1)", { image: `sha256:${"0".repeat(64)}` });
  expect(report).toMatchObject({
    status: "failed",
    error: {
      type: "docker_error",
      message: expect.stringContaining("build the job type again") as string,
      phase: "startup",
    },
  });
});

test("network: none has only a loopback, bridge reaches the network", async () => {
  const address = await bridgeAddress();
  const server = createServer((_request, response) => response.end("hello")).listen(0, address);
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const code = `
import os, urllib.request
print(sorted(os.listdir("/sys/class/net")))
print(urllib.request.urlopen("http://${address}:${port}/", timeout=5).read())`;
  try {
    const none = await run({ network: "none" }, code);
    expect(none).toMatchObject({ status: "failed", error: { type: "network_error" } });
    expect(none.out).toBe("['lo']\n");
    expect((await run({ network: "bridge" }, code)).out).toBe("['eth0', 'lo']\nb'hello'\n");
  } finally {
    server.close();
  }
});
