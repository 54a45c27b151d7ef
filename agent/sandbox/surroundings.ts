import type { SandboxSpec } from "./spec.ts";

/** Host name that the code finds. */
export const hostname = "sandbox";

/** Thread counts that libraries would otherwise derive from the host's CPUs. */
const threadCounts = [
  "OMP_NUM_THREADS",
  "OPENBLAS_NUM_THREADS",
  "MKL_NUM_THREADS",
  "NUMEXPR_NUM_THREADS",
  "PYTHON_CPU_COUNT",
];

/** The environment that a spec asks for, in addition to what its image sets. */
export function environmentOf({ cpus, env, gpus }: SandboxSpec): string[] {
  const count = String(Math.max(1, Math.ceil(cpus)));
  // Many images ask for all GPUs here, and a host whose default runtime is nvidia's would grant
  // them.
  const visible = { NVIDIA_VISIBLE_DEVICES: gpus.join(",") || "void" };
  const threads = Object.fromEntries(threadCounts.map((name) => [name, count]));
  const all = { ...threads, ...env, ...visible };
  return Object.entries(all).map(([name, value]) => `${name}=${value}`);
}

/** Bytes that the supervisor and a small program need. */
const processBytes = 28 * 1024 * 1024;

/** Sizes in bytes of /dev/shm, and of /tmp and /output each. */
export function temporaryFileSizes(memoryBytes: number): { shm: number; writable: number } {
  const forProcesses = Math.max(memoryBytes / 8, Math.min(processBytes, memoryBytes * 0.75));
  const seventh = Math.floor((memoryBytes - forProcesses) / 7);
  return { shm: seventh, writable: 3 * seventh };
}
