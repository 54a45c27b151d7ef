import { expect, test } from "vitest";
import { isOrphan } from "./dockerd-leftovers.ts";
import { MACHINE_DOCKERD } from "./dockerd-place.ts";
import { readPidFile, readProcess } from "./processes.ts";

const containerd = {
  pid: 7,
  parentPid: 1,
  name: "containerd",
  args: ["containerd", "--config", "/var/run/docker/containerd/containerd.toml"],
};
const init = { pid: 1, parentPid: 0, name: "systemd", args: [] };

test("only a containerd of this dockerd whose parent is gone is an orphan", () => {
  expect(isOrphan(containerd, MACHINE_DOCKERD, init)).toBe(true);
  expect(isOrphan(containerd, MACHINE_DOCKERD, undefined)).toBe(true);
  expect(isOrphan(containerd, MACHINE_DOCKERD, { ...init, name: "dockerd" })).toBe(false);
  expect(isOrphan({ ...containerd, name: "postgres" }, MACHINE_DOCKERD, init)).toBe(false);
  expect(isOrphan({ ...containerd, args: ["containerd"] }, MACHINE_DOCKERD, init)).toBe(false);
});

test("reads this process from /proc, and nothing if it does not exist", () => {
  expect(readProcess(process.pid)).toMatchObject({ parentPid: process.ppid });
  expect(readProcess(2 ** 22 + 1)).toBeUndefined();
  expect(readPidFile("/nowhere.pid")).toBeUndefined();
});
