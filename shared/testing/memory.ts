import { readFileSync, writeFileSync } from "node:fs";

/** Peak memory of a process in bytes, since its start or `forgetPeak`. */
export function peakBytes(pid: number): number {
  return statusBytes(pid, "VmHWM");
}

/** Memory of a process in bytes now. */
export function residentBytes(pid: number): number {
  return statusBytes(pid, "VmRSS");
}

/** Source: proc(5), /proc/pid/clear_refs. */
export function forgetPeak(pid: number): void {
  writeFileSync(`/proc/${pid}/clear_refs`, "5");
}

function statusBytes(pid: number, row: string): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const kib = new RegExp(`^${row}:\\s+([0-9]+) kB$`, "m").exec(status)?.[1];
  if (kib === undefined) throw new Error(`no ${row} of process ${pid}`);
  return Number(kib) * 1024;
}
