import { readFileSync } from "node:fs";
import type { Row } from "../row.ts";

const MiB = 1024 ** 2;

export const agentMemory: Row = {
  name: "agent-memory",
  what: "the agent's memory (its peak, resident) while a job writes 10 GB to stdout",
  goal: "≤ 150 MB",
  measure: async (world) => {
    await using service = await world.startService();
    const before = peakMb(service.pids().agent);
    const chunks = world.quick ? 256 : 10 * 1024;
    const code = `import os\nchunk = b"x" * ${MiB}\nfor _ in range(${chunks}): os.write(1, chunk)`;
    await service.execute(code, { timeout: 240 });
    const after = peakMb(service.pids().agent);
    return [
      { name: "peak", unit: "MB", samples: [after] },
      { name: "before the job", unit: "MB", samples: [before] },
    ];
  },
  reaches: (of) => of("peak").max <= 150,
};

/** VmHWM of a process. Source: proc_pid_status(5). */
function peakMb(pid: number): number {
  const kB = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  return (Number(kB) * 1024) / 1e6;
}
