import { expect, test, vi } from "vitest";
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
import { testJob } from "../testing/test-agent.ts";

useWorld();
const smallMemory = { ...testJob().job_type, memory_limit: "64m" };

test("jobs that ask for the same packages at once install them once, and the bundle goes with the last job", async () => {
  const opens = Promise.withResolvers<void>();
  const index = await indexOf({ opens: opens.promise });
  await startForking(index);
  for (let jobs = 0; jobs < 3; jobs++) offer();
  await vi.waitFor(() => expect(index.requests.length).toBeGreaterThan(0), 240_000);
  opens.resolve();
  for (let jobs = 0; jobs < 3; jobs++) {
    const report = await nextResult();
    expect(told(report)).toEqual(["succeeded", "42\n"]);
    expect(report.timing.dep_install_ms).toBeGreaterThan(0);
  }
  expect(index.requests.filter((path) => path.endsWith(".whl"))).toHaveLength(1);
  await vi.waitFor(async () => expect(await bundlesInVolume(name)).toEqual([]), 240_000);
});

test("a cancel of the job that began an installation does not end it for the others", async () => {
  const opens = Promise.withResolvers<void>();
  const index = await indexOf({ opens: opens.promise });
  await startForking(index);
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
  const wheels = [{ ...probe, requires: ["airlock-missing"] }];
  await startForking(await indexOf({ wheels, hanging: "airlock-slow" }));
  const missing = await run();
  expect(missing).toMatchObject({
    status: "failed",
    error: { type: "dependency_error", phase: "startup" },
  });
  expect(missing.error?.message).toContain("No matching distribution found for airlock-missing");
  expect(missing.timing.dep_install_ms).toBeGreaterThan(0);
  expect(await run({ requirements: ["airlock-slow"], startup_timeout_s: 8 })).toMatchObject({
    status: "timeout",
    error: {
      type: "startup_timeout",
      message: "The requirements were not installed within 8 s (startup_timeout).",
    },
  });
  expect(await bundlesInVolume(name)).toEqual([]);
});

test("a bundle larger than the job's memory can be used, and the code can neither write it nor see others", async () => {
  const index = await indexOf({ wheels: [wheel("a", 70), probe] });
  await startForking(index, cached);
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
print(os.listdir("/packages"), os.path.exists("/rootfs"), os.listdir("/input"), open("/input/_requirements.txt").read())
print([root for root, _, names in os.walk("/") if "airlock_probe.py" in names])`;
  const report = await run({
    code: look,
    requirements: ["airlock-a"],
    job_type: smallMemory,
    timeout_s: 120,
  });
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

test("with the cache a bundle outlives its agent, and needs no index again", async () => {
  const index = await indexOf();
  const first = await startForking(index, cached);
  expect(told(await run())).toEqual(["succeeded", "42\n"]);
  first.process.kill("SIGKILL");
  await first.exit;
  await startForking(index, cached);
  index.close();
  const report = await run();
  expect([told(report), report.timing.dep_install_ms]).toEqual([["succeeded", "42\n"], 0]);
  // Whether somebody else has asked for the same packages must not show.
  const other = await run({ tenant: "other" });
  expect(other.error?.type).toBe("dependency_error");
});
