import { readFileSync } from "node:fs";

/** What the kernel uses on this host for itself, in MiB. */
export interface KernelUse {
  /** Neither processes' nor files': buffers of sockets, compiled filters, objects that no control group is charged for. */
  readonly memory: number;
  /** Buffers of sockets of TCP and UDP. */
  readonly sockets: number;
  /** Compiled filters of all processes, which net.core.bpf_jit_limit bounds together. */
  readonly filters: number;
}

const pageMiB = 4096 / 1024 ** 2;
const sampleMs = 20;

/** Follows what the kernel of this host uses. `most` is the largest growth of each since then. */
export function watchKernel(): { most: () => KernelUse; now: () => KernelUse; stop: () => void } {
  const before = kernelUse();
  let most: KernelUse = { memory: 0, sockets: 0, filters: 0 };
  const now = (): KernelUse => combine(kernelUse(), before, (a, b) => a - b);
  const timer = setInterval(() => (most = combine(now(), most, Math.max)), sampleMs);
  return { most: () => most, now, stop: () => clearInterval(timer) };
}

function combine(a: KernelUse, b: KernelUse, of: (a: number, b: number) => number): KernelUse {
  const { memory, sockets, filters } = a;
  return {
    memory: Math.round(of(memory, b.memory)),
    sockets: Math.round(of(sockets, b.sockets)),
    filters: Math.round(of(filters, b.filters)),
  };
}

/** Source: proc_meminfo(5), the kernel's documentation of sockstat and vmallocinfo in proc(5). */
function kernelUse(): KernelUse {
  const kiB = new Map(
    readFileSync("/proc/meminfo", "utf8")
      .split("\n")
      .map((line): [string, number] => [line.split(":")[0]!, Number(/\d+/.exec(line)?.[0])]),
  );
  const of = (...names: string[]): number => names.reduce((sum, name) => sum + kiB.get(name)!, 0);
  const others = of("MemFree", "Buffers", "Cached", "SwapCached", "AnonPages", "SReclaimable");
  const pages = readFileSync("/proc/net/sockstat", "utf8").matchAll(/^(?:TCP|UDP):.* mem (\d+)/gm);
  const filters = readFileSync("/proc/vmallocinfo", "utf8").matchAll(/ (\d+) bpf_/g);
  return {
    memory: (of("MemTotal") - others) / 1024,
    sockets: [...pages].reduce((sum, [, count]) => sum + Number(count) * pageMiB, 0),
    filters: [...filters].reduce((sum, [, bytes]) => sum + Number(bytes) / 1024 ** 2, 0),
  };
}
