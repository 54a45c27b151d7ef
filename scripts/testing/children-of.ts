import { readdirSync } from "node:fs";
import { readProcess } from "../setup/engine/processes.ts";

/** The live children of a process, by pid. */
export function childrenOf(parentPid: number): number[] {
  return readdirSync("/proc")
    .map(Number)
    .filter((pid) => pid > 0 && readProcess(pid)?.parentPid === parentPid);
}
