/**
 * The fields of an engine's answer to GET /info that are used here. Source: Docker Engine API 1.41,
 * Podman 4.3.
 */
export interface EngineInfo {
  readonly ServerVersion: string;
  readonly DefaultRuntime?: string;
  readonly Runtimes?: Readonly<Record<string, unknown>>;
  readonly CgroupVersion?: string;
  readonly MemoryLimit?: boolean;
  readonly CpuCfsQuota?: boolean;
  readonly PidsLimit?: boolean;
  /** Docker says here that it is rootless. */
  readonly SecurityOptions?: readonly string[];
  /** Podman says here that it is rootless. */
  readonly Rootless?: boolean;
  /** Only Podman sets this. */
  readonly BuildahVersion?: string;
}

/**
 * The fields of an engine's answer to GET /libpod/info that are used here. Source: Podman 4.0 API.
 */
export interface PodmanInfo {
  readonly host?: { readonly cgroupControllers?: readonly string[] };
}

const remedy = "start the host with cgroup v2 and let the engine's user have its controllers";

const controllerOf = { memory: "memory", cpu: "CPU", pids: "processes" };

/**
 * Whether /info does not say which limits the engine enforces. On cgroup v2 Podman always reports
 * memory and process limits and no CPU limit there; the controllers in its own info are right.
 */
export function hidesLimits(info: EngineInfo): boolean {
  return info.BuildahVersion !== undefined && info.CgroupVersion === "2";
}

/**
 * Why jobs on this engine would run without limits; null if the engine enforces them. A rootless
 * Podman on cgroup v1 accepts limits and reports them, but does not enforce them.
 */
export function limitsProblem(info: EngineInfo, podman?: PodmanInfo): string | null {
  const isRootless = info.Rootless === true || info.SecurityOptions?.includes("name=rootless");
  if (isRootless && info.CgroupVersion === "1") {
    return `the engine is rootless on cgroup v1, where it holds none of a job's limits: ${remedy}, or run the engine as root`;
  }
  const missing = hidesLimits(info) ? missingControllers(podman) : missingLimits(info);
  if (missing.length === 0) return null;
  return `the engine cannot limit a job's ${missing.join(", ")}: ${remedy}`;
}

function missingLimits(info: EngineInfo): string[] {
  const limits = { memory: info.MemoryLimit, CPU: info.CpuCfsQuota, processes: info.PidsLimit };
  return Object.entries(limits).flatMap(([what, held]) => (held === false ? what : []));
}

function missingControllers(podman: PodmanInfo | undefined): string[] {
  const controllers = podman?.host?.cgroupControllers ?? [];
  return Object.entries(controllerOf).flatMap(([controller, what]) =>
    controllers.includes(controller) ? [] : what,
  );
}
