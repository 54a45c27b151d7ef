import { readFileSync } from "node:fs";

/** Linux reports CPU time in ticks of 10 ms on every architecture. */
export const msPerTick = 10;

/** User and system time of a process so far. Source: proc_pid_stat(5). */
export function cpuMsOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const words = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(words[11]) + Number(words[12])) * msPerTick;
}

/** The most resident memory that a process had. Source: proc_pid_status(5). */
export function peakMbOf(pid: number): number {
  const kB = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  return (Number(kB) * 1024) / 1e6;
}

/** What a process has given the kernel to store so far. Source: proc_pid_io(5). */
export function storedKbOf(pid: number): number {
  const bytes = /^write_bytes: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, "utf8"))?.[1];
  return Number(bytes) / 1e3;
}
