import { readdirSync, readFileSync } from "node:fs";
import { controlGroupsOf } from "../../agent/sandbox/testing/control-groups.ts";

/** Processes, mounts and control groups that name one of the containers. */
export function tracesOf(marks: ReadonlySet<string>): string[] {
  const named = (text: string): boolean => [...marks].some((mark) => text.includes(mark));
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return [
    ...pids.filter((pid) => named(read(`/proc/${pid}/cgroup`))).map((pid) => `process ${pid}`),
    ...read("/proc/mounts").split("\n").filter(named),
    ...controlGroupsOf(marks),
  ];
}

/** Control groups of jobs in the mother with this process, on cgroup v1 and v2. */
export function groupsOfJobs(pid: number): string[] {
  return ["memory", "pids", "cpu", ""].flatMap((controller) => {
    const line = read(`/proc/${pid}/cgroup`)
      .split("\n")
      .map((each) => each.split(":"))
      .find(([, controllers = ""]) => controllers.split(",").includes(controller));
    if (!line) return [];
    const folder = `/sys/fs/cgroup/${controller}${line[2]!.replace(/\/mother$/, "")}`;
    return namesIn(folder)
      .filter((name) => name.startsWith("job-"))
      .map((name) => `${folder}/${name}`);
  });
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
