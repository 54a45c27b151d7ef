import { readFileSync } from "node:fs";

export type Process = { pid: number; name: string; args: string[]; parentPid: number };

/** A running process from /proc; undefined if there is none or it is a zombie. */
export function readProcess(pid: number): Process | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const [state, parentPid] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    if (state === "Z") return undefined;
    const name = stat.slice(stat.indexOf("(") + 1, stat.lastIndexOf(")"));
    const args = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").slice(0, -1);
    return { pid, name, args, parentPid: Number(parentPid) };
  } catch {
    return undefined;
  }
}

/** The pid in a pid file; undefined if the file is missing or has no valid pid. */
export function readPidFile(path: string): number | undefined {
  try {
    const pid = Number(readFileSync(path, "utf8").trim());
    return Number.isSafeInteger(pid) && pid > 1 ? pid : undefined;
  } catch {
    return undefined;
  }
}
