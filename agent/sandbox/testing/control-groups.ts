import { readdirSync } from "node:fs";
import { join } from "node:path";

/** Where engines create control groups: on cgroup v2, and under the memory controller of v1. */
const roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"];
const parents = ["docker", "system.slice", "machine.slice", "libpod_parent"];

/** The control groups on this machine whose name has one of the marks, such as a container's id. */
export function controlGroupsOf(marks: ReadonlySet<string>): string[] {
  const folders = roots.flatMap((root) => parents.map((parent) => join(root, parent)));
  return folders.flatMap((folder) =>
    namesIn(folder)
      .filter((name) => [...marks].some((mark) => name.includes(mark)))
      .map((name) => join(folder, name)),
  );
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
