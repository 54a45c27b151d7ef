import { expect, test } from "vitest";
import { type Answer, fakeEngines } from "../testing/fake-engine.ts";

const { fakeEngine } = fakeEngines();
const never = new AbortController().signal;

test.each([
  [
    { Rootless: true, CgroupVersion: "1", MemoryLimit: true },
    /rootless on cgroup v1.*run the engine as root/,
  ],
  [{ SecurityOptions: ["name=rootless"], CgroupVersion: "1" }, /rootless on cgroup v1/],
  [
    { MemoryLimit: false, CpuCfsQuota: true, PidsLimit: false },
    /cannot limit a job's memory, processes: /,
  ],
])("an engine that would run jobs without their limits is none: %o", async (info, words) => {
  const engine = await fakeEngine((request, response) => {
    request.resume().on("end", () => response.end(JSON.stringify({ ServerVersion: "4", ...info })));
  });
  await expect(engine.describe(never)).rejects.toThrow(words);
});

test.each([
  { Rootless: true, CgroupVersion: "2" },
  { CgroupVersion: "1", PidsLimit: true },
])("an engine that holds limits is one: %o", async (info) => {
  const engine = await fakeEngine((request, response) => {
    request.resume().on("end", () => response.end(JSON.stringify({ ServerVersion: "4", ...info })));
  });
  expect(await engine.describe(never)).toMatchObject({ available: true });
});

/** What Podman 5.4.2 says on cgroup v2 as root, and as a user whatever controllers that user has. */
const podmanInfo = {
  ServerVersion: "5.4.2",
  BuildahVersion: "1.39.3",
  CgroupVersion: "2",
  MemoryLimit: true,
  CpuCfsQuota: false,
  PidsLimit: true,
};

function podmanWith(cgroupControllers: readonly string[]): Answer {
  return (request, response) => {
    const isOwn = /^\/v[0-9.]+\/libpod\/info$/.test(request.url ?? "");
    const info = isOwn ? { host: { cgroupControllers } } : podmanInfo;
    request.resume().on("end", () => response.end(JSON.stringify(info)));
  };
}

test("Podman on cgroup v2 holds what its controllers limit, whatever it says of CPU limits", async () => {
  const engine = await fakeEngine(podmanWith(["cpuset", "cpu", "io", "memory", "pids"]));
  expect(await engine.describe(never)).toMatchObject({ available: true, version: "5.4.2" });
});

test.each([
  [["memory", "pids"], /cannot limit a job's CPU: .*controllers/],
  [["cpu"], /cannot limit a job's memory, processes: /],
  [[], /cannot limit a job's memory, CPU, processes: /],
])("Podman on cgroup v2 with the controllers %o is refused", async (controllers, words) => {
  const engine = await fakeEngine(podmanWith(controllers));
  await expect(engine.describe(never)).rejects.toThrow(words);
});
