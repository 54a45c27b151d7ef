import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { LeasedJob, ResultReport } from "../../shared/wire/agent/lease.ts";
import {
  type IndexOptions,
  type PackageIndex,
  startIndex,
} from "../sandbox/testing/package-index.ts";
import { rawEngine, removeContainersOf } from "../sandbox/testing/raw-engine.ts";
import type { Wheel } from "../sandbox/testing/wheel.ts";
import { type AgentProcess, startAgent } from "../testing/agent-process.ts";
import { type FakeApi, startFakeApi } from "../testing/fake-api.ts";
import { setsInVolume } from "../testing/sets-in-volume.ts";
import { testJob } from "../testing/test-agent.ts";

const MiB = 1024 ** 2;
const probe = { name: "airlock_probe", version: "1.0", source: "n = 42\n" };
const code = "import airlock_probe; print(airlock_probe.n)";
const wheel = (letter: string, mebibytes: number): Wheel => ({
  ...probe,
  name: `airlock_${letter}`,
  files: { [`${letter}.txt`]: letter.repeat(mebibytes * MiB) },
});
const smallMemory = { ...testJob().job_type, memory_limit: "64m" };

let api: FakeApi;
let folder: string;
let name: string;
let agents: AgentProcess[];
let indexes: PackageIndex[];
let results: number;
beforeEach(async () => {
  api = await startFakeApi();
  folder = await mkdtemp(join(tmpdir(), "airlock-test-"));
  name = `test-${randomUUID()}`;
  agents = [];
  indexes = [];
  results = 0;
});
afterEach(async () => {
  for (const { process } of agents) process.kill("SIGTERM");
  await Promise.all(agents.map(({ exit }) => exit));
  for (const index of indexes) index.close();
  const left = await leaseLabels();
  await removeContainersOf(name);
  await api[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
  if (left.length > 0) throw new Error(`left behind: ${left.join()}`);
});

async function indexOf(options: Partial<IndexOptions> = {}): Promise<PackageIndex> {
  const index = await startIndex({ address: "127.0.0.1", wheels: [probe], ...options });
  indexes.push(index);
  return index;
}

/** An agent that forks its jobs and lets them bring packages. */
async function start(index: PackageIndex, env: Record<string, string> = {}): Promise<AgentProcess> {
  const agent = startAgent({
    AIRLOCK_API_URL: api.url,
    AIRLOCK_AGENT_NAME: name,
    AIRLOCK_DOCKER_HOST: process.env["AIRLOCK_DOCKER_HOST"],
    AIRLOCK_SPOOL_DIR: join(folder, "spool"),
    AIRLOCK_DATA_DIR: join(folder, "data"),
    AIRLOCK_WARM_POOL_SIZE: "0",
    AIRLOCK_CONTAINER_BACKEND: "zygote",
    AIRLOCK_ALLOW_RUNTIME_REQUIREMENTS: "true",
    AIRLOCK_PIP_INDEX_URL: index.url,
    ...env,
  });
  agents.push(agent);
  await agent.ready;
  return agent;
}

const cached = { AIRLOCK_ENABLE_RUNTIME_DEPENDENCY_CACHE: "true" };

function offer(job: Partial<LeasedJob> = {}): LeasedJob {
  const offered = testJob({ code, requirements: ["airlock-probe"], ...job });
  api.offer(offered);
  return offered;
}
async function nextResult(): Promise<ResultReport> {
  results += 1;
  return (await api.request("/result", results)).json as ResultReport;
}
async function run(job: Partial<LeasedJob> = {}): Promise<ResultReport> {
  offer(job);
  return nextResult();
}
/** What ended, and what it printed. */
const told = ({ status, stdout_base64, error }: ResultReport) => [
  status,
  Buffer.from(stdout_base64, "base64").toString() || error?.message,
];

async function leaseLabels(filter: object = {}): Promise<string[]> {
  const filters = { label: [`io.airlock.owner=${name}`], ...filter };
  const found = await rawEngine.listContainers({ all: true, filters });
  return found.map(({ Labels }) => Labels["io.airlock.lease"] ?? "");
}

/** Waits until an agent's container with a label of this kind runs. */
async function untilRunning(kind: string): Promise<void> {
  await vi.waitFor(
    async () => {
      expect(await leaseLabels({ status: ["running"] })).toContainEqual(
        expect.stringContaining(kind),
      );
    },
    { timeout: 240_000, interval: 10 },
  );
}

test("jobs that ask for the same set at once install it once, and it goes with the last of them", async () => {
  const opens = Promise.withResolvers<void>();
  const index = await indexOf({ opens: opens.promise });
  await start(index);
  for (let jobs = 0; jobs < 3; jobs++) offer();
  await vi.waitFor(() => expect(index.requests.length).toBeGreaterThan(0), 240_000);
  opens.resolve();
  for (let jobs = 0; jobs < 3; jobs++) {
    const report = await nextResult();
    expect(told(report)).toEqual(["succeeded", "42\n"]);
    expect(report.timing.dep_install_ms).toBeGreaterThan(0);
  }
  expect(index.requests.filter((path) => path.endsWith(".whl"))).toHaveLength(1);
  await vi.waitFor(async () => expect(await setsInVolume(name)).toEqual([]), 240_000);
});

test("a cancel of the job that began an installation does not end it for the others", async () => {
  const opens = Promise.withResolvers<void>();
  const index = await indexOf({ opens: opens.promise });
  await start(index);
  const first = offer();
  await vi.waitFor(() => expect(index.requests.length).toBeGreaterThan(0), 240_000);
  offer();
  await untilRunning("install-");
  api.cancel.push(first.lease_id);
  api.wake();
  expect((await nextResult()).status).toBe("cancelled");
  opens.resolve();
  expect(told(await nextResult())).toEqual(["succeeded", "42\n"]);
  expect(index.requests.filter((path) => path.endsWith(".whl"))).toHaveLength(1);
});

test("an installation that fails says why, in pip's words and within startup_timeout", async () => {
  const index = await indexOf({ wheels: [{ ...probe, requires: ["airlock-missing"] }] });
  const agent = await start(index);
  const missing = await run();
  expect(missing).toMatchObject({
    status: "failed",
    error: { type: "dependency_error", phase: "startup" },
  });
  expect(missing.error?.message).toContain("No matching distribution found for airlock-missing");
  expect(missing.timing.dep_install_ms).toBeGreaterThan(0);
  agent.process.kill("SIGTERM");
  await agent.exit;
  await start(await indexOf({ opens: new Promise(() => {}) }));
  expect(await run({ startup_timeout_s: 8 })).toMatchObject({
    status: "timeout",
    error: {
      type: "startup_timeout",
      message: "The requirements were not installed within 8 s (startup_timeout).",
    },
  });
  expect(await setsInVolume(name)).toEqual([]);
});

test("a set larger than the job's memory can be used, and the code can neither write it nor see others", async () => {
  const index = await indexOf({ wheels: [wheel("a", 70), probe] });
  await start(index, cached);
  expect(told(await run())).toEqual(["succeeded", "42\n"]);
  const look = `
import airlock_a, errno, os
folder = os.path.dirname(airlock_a.__file__)
with open(folder + "/a.txt") as file: print(sum(map(len, iter(lambda: file.read(65536), ""))))
def denied(act):
    try:
        act()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
print({denied(act) for act in (
    lambda: open(folder + "/x", "w"), lambda: os.unlink(airlock_a.__file__), lambda: os.mkdir("/packages/x"),
    lambda: os.chmod(folder, 0o777), lambda: os.utime(folder), lambda: os.setxattr(folder, "user.a", b"x"))})
mounts = [line.split() for line in open("/proc/self/mountinfo")]
print([sorted({"ro", "nosuid", "nodev"} & set(words[5].split(","))) for words in mounts if words[4] == "/packages"])
print(os.listdir("/packages"), os.path.exists("/roots"), os.listdir("/input"), open("/input/_requirements.txt").read())
print([root for root, _, names in os.walk("/") if "airlock_probe.py" in names])`;
  const report = await run({ code: look, requirements: ["airlock-a"], job_type: smallMemory });
  expect(told(report)).toEqual([
    "succeeded",
    [
      70 * MiB,
      "{'EROFS'}",
      "[['nodev', 'nosuid', 'ro']]",
      "['lib'] False ['data.json', '_requirements.txt'] airlock-a",
      "",
      "[]",
      "",
    ].join("\n"),
  ]);
});

describe("with the cache", () => {
  test("a set outlives its agent, and needs no index again", async () => {
    const index = await indexOf();
    const first = await start(index, cached);
    expect(told(await run())).toEqual(["succeeded", "42\n"]);
    first.process.kill("SIGKILL");
    await first.exit;
    await start(index, cached);
    index.close();
    const report = await run();
    expect([told(report), report.timing.dep_install_ms]).toEqual([["succeeded", "42\n"], 0]);
  });

  test("the least recently used sets go first; one in use stays and can still be imported from", async () => {
    const index = await indexOf({ wheels: ["a", "b", "c", "d"].map((letter) => wheel(letter, 4)) });
    await start(index, { ...cached, AIRLOCK_DEPENDENCY_CACHE_BYTES: String(13 * MiB) });
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
    await vi.waitFor(async () => expect(await setsInVolume(name)).toHaveLength(3), 240_000);
    expect((await printing("d")).timing.dep_install_ms).toBe(0);
    expect((await printing("b")).timing.dep_install_ms).toBeGreaterThan(0);
    api.cancel.push(user.lease_id);
    api.wake();
    expect(told(await nextResult())).toEqual(["cancelled", "42\n"]);
  });

  test("a set over the bound is refused with the key to raise, and leaves nothing", async () => {
    const index = await indexOf({ wheels: [probe, wheel("a", 12)] });
    await start(index, { ...cached, AIRLOCK_DEPENDENCY_CACHE_BYTES: String(10 * MiB) });
    const report = await run({ requirements: ["airlock-a"] });
    expect(report).toMatchObject({ status: "failed", error: { type: "dependency_error" } });
    expect(report.error?.message).toContain("10 MiB");
    expect(report.error?.message).toContain("raise its dependency_cache_bytes");
    expect(report.timing.dep_install_ms).toBeGreaterThan(0);
    expect(told(await run())).toEqual(["succeeded", "42\n"]);
    expect(await setsInVolume(name)).toHaveLength(1);
  });

  // Unpacking takes long enough for the kill.
  test.each([
    ["install-", 1],
    ["unpack-", 64],
  ])(
    "an agent that is killed while its container %s… runs leaves nothing of the set",
    async (kind, mebibytes) => {
      const opens = Promise.withResolvers<void>();
      const index = await indexOf({ wheels: [wheel("a", mebibytes)], opens: opens.promise });
      const first = await start(index, cached);
      // The files of the image have to be there: these are unpacked, too.
      expect(told(await run({ code: "print(1)", requirements: [] }))).toEqual(["succeeded", "1\n"]);
      offer({ code: "import airlock_a; print(airlock_a.n)", requirements: ["airlock-a"] });
      await vi.waitFor(() => expect(index.requests.length).toBeGreaterThan(0), 240_000);
      if (kind === "unpack-") opens.resolve();
      await untilRunning(kind);
      first.process.kill("SIGKILL");
      await first.exit;
      opens.resolve();
      await start(index, cached);
      const report = await run({
        code: "import airlock_a; print(airlock_a.n)",
        requirements: ["airlock-a"],
      });
      expect(told(report)).toEqual(["succeeded", "42\n"]);
      expect(await setsInVolume(name)).toEqual([expect.stringMatching(/^[0-9a-f]{32}$/)]);
    },
  );
});
