/** What matters of an engine's answer to GET /info. Source: Docker Engine API 1.41, Podman 4.3. */
export interface EngineInfo {
  readonly ServerVersion: string;
  readonly DefaultRuntime?: string;
  readonly Runtimes?: Readonly<Record<string, unknown>>;
  readonly CgroupVersion?: string;
  readonly MemoryLimit?: boolean;
  readonly CpuCfsQuota?: boolean;
  readonly PidsLimit?: boolean;
  /** Docker's way to say that it is rootless. */
  readonly SecurityOptions?: readonly string[];
  /** Podman's. */
  readonly Rootless?: boolean;
  /** Told by Podman alone. */
  readonly BuildahVersion?: string;
}

const remedy = "start the host with cgroup v2 and let the engine's user have its controllers";

/**
 * Why jobs on this engine would run without their limits; null where they would not. A rootless
 * Podman on cgroup v1 takes limits, says that it holds them, and drops them.
 */
export function limitsProblem(info: EngineInfo): string | null {
  const isRootless = info.Rootless === true || info.SecurityOptions?.includes("name=rootless");
  if (isRootless && info.CgroupVersion === "1") {
    return `the engine is rootless on cgroup v1, where it holds none of a job's limits: ${remedy}, or run the engine as root`;
  }
  const limits = { memory: info.MemoryLimit, CPU: info.CpuCfsQuota, processes: info.PidsLimit };
  const missing = Object.entries(limits).flatMap(([what, held]) => (held === false ? what : []));
  if (missing.length === 0) return null;
  return `the engine cannot limit a job's ${missing.join(", ")}: ${remedy}`;
}
