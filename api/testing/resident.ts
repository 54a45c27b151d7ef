import { readFileSync } from "node:fs";
import type { NodeProcess } from "./start-node.ts";

/** Bytes of memory that a process has now, or had at its peak. */
export function residentBytes({ child }: NodeProcess, when: "now" | "peak" = "now"): number {
  const status = readFileSync(`/proc/${child.pid}/status`, "utf8");
  const line = when === "now" ? /^VmRSS:\s+(\d+) kB/m : /^VmHWM:\s+(\d+) kB/m;
  return Number(line.exec(status)?.[1]) * 1024;
}
