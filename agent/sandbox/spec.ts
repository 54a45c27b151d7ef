import type { Loopback, NetworkMode } from "../../shared/wire/job-type.ts";

/** Everything that is fixed before the job is known, so that a container can be started ahead. */
export interface SandboxSpec {
  /** Reference or id of an image with python3 ≥ 3.9 on its PATH. */
  readonly image: string;
  readonly labels: SandboxLabels;
  readonly memoryBytes: number;
  /** CPUs, in fractions. */
  readonly cpus: number;
  readonly pids: number;
  readonly network: NetworkMode;
  /** Sockets that the code may make: with a network, "full". */
  readonly loopback: Loopback;
  /** The engine's runtime by name; null for its default. */
  readonly runtime: string | null;
  /** Whether system calls are filtered. */
  readonly seccomp: boolean;
  /**
   * Where packages are installed: in the container's memory, or on disk, where that memory does not bound
   * them. "none": there is no /packages.
   */
  readonly packages: "none" | "memory" | "disk";
  readonly env: Readonly<Record<string, string>>;
  /** Modules imported before the job arrives, with the rights of the code. */
  readonly preload: readonly string[];
  /** The tenant from whose jobs the preload was learned. */
  readonly learnedFor?: string;
  /** GPUs that only this container uses, by index or UUID. */
  readonly gpus: readonly string[];
}

/** What a sandbox has where nothing else is said: one CPU, no network, all safeguards. */
export const plainSpec = {
  cpus: 1,
  network: "none",
  loopback: "tcp",
  runtime: null,
  seccomp: true,
  packages: "none",
  env: {},
  preload: [],
  gpus: [],
} as const satisfies Partial<SandboxSpec>;

export interface SandboxLabels {
  /** Id of this agent process, fresh at every start. */
  readonly agentId: string;
  /** Name of the agent, the same after a restart. */
  readonly agentName: string;
  /** The lease that the container was made for; null if it was started before its job came. */
  readonly leaseId: string | null;
}
