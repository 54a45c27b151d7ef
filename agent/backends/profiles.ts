import { pid1Command } from "../python/program.ts";
import { motherProfile as motherFilter, seccompProfile } from "../sandbox/filter.ts";
import {
  environmentOf,
  hostname,
  labels,
  type SandboxLabels,
  type SandboxSpec,
  temporaryFileSizes,
} from "../sandbox/sandbox.ts";

/** Limit of open descriptors per process. */
const openFiles = 4096;
/**
 * Bytes of the container's limit that gVisor's own kernel uses: 20 MiB idle, more with files and
 * processes.
 */
const gvisorBytes = 32 * 1024 * 1024;
/**
 * Bytes of memory for what lies unread in a TCP socket, and for what it has not sent: least, default, most.
 * Settings of the network namespace, as with cgroup v1 these buffers count against no limit of a job.
 */
const tcpBuffers = "4096 16384 65536";

/** What the engine masks by default (source: moby, oci/defaults.go), and what lets code put load on the kernel. */
const maskedPaths = [
  "/proc/acpi",
  "/proc/asound",
  // While 8 processes read ext4's es_shrinker_info, making a file takes half a second on the host.
  "/proc/fs",
  "/proc/interrupts",
  "/proc/kallsyms",
  "/proc/kcore",
  "/proc/keys",
  "/proc/latency_stats",
  // Each trigger that code sets there costs the kernel time, even after the code has been killed.
  "/proc/pressure",
  "/proc/scsi",
  "/proc/sched_debug",
  "/proc/timer_list",
  "/proc/timer_stats",
  "/sys/devices/virtual/powercap",
  "/sys/firmware",
];

/**
 * The complete profile of a container: the body of its create call. Source: Docker Engine API 1.41,
 * ContainerCreate.
 */
export function containerProfile(spec: SandboxSpec) {
  const [entrypoint = "", ...command] = pid1Command;
  const isGvisor = spec.runtime?.startsWith("runsc") ?? false;
  const memory = spec.memoryBytes + (isGvisor ? gvisorBytes : 0);
  return {
    ...commonProfile(spec.image, spec.labels),
    Entrypoint: [entrypoint],
    Cmd: command,
    Hostname: hostname,
    Env: environmentOf(spec),
    // Seconds that an engine that shuts down waits for the container; PID 1 ignores its signal.
    StopTimeout: 1,
    // Saves the engine the network sandbox that it makes even for the network "none".
    NetworkDisabled: spec.network === "none",
    HostConfig: {
      NetworkMode: spec.network,
      ReadonlyRootfs: true,
      CapDrop: ["ALL"],
      CapAdd: ["SETUID", "SETGID", "KILL", "SETPCAP"],
      SecurityOpt: ["no-new-privileges", `seccomp=${filterOf(spec)}`],
      MaskedPaths: maskedPaths,
      IpcMode: "private",
      Init: false,
      Memory: memory,
      MemorySwap: memory,
      NanoCpus: Math.round(spec.cpus * 1e9),
      // A pids limit makes gVisor panic; it counts processes itself.
      ...(isGvisor ? {} : { PidsLimit: spec.pids }),
      Ulimits: [
        ulimit("nofile", openFiles),
        ...(spec.packages === "disk" ? [] : [ulimit("fsize", spec.memoryBytes)]),
        ulimit("core", 0),
        ...(isGvisor ? [ulimit("nproc", spec.pids)] : []),
      ],
      ...temporaryFiles(spec),
      ...(spec.network === "none" && {
        Sysctls: { "net.ipv4.tcp_rmem": tcpBuffers, "net.ipv4.tcp_wmem": tcpBuffers },
      }),
      LogConfig: { Type: "none", Config: {} },
      ...(spec.runtime === null ? {} : { Runtime: spec.runtime }),
      ...(spec.gpus.length === 0 ? {} : { DeviceRequests: [gpuRequest(spec.gpus)] }),
    },
  };
}

const filterOf = ({ seccomp, loopback }: SandboxSpec): string =>
  seccomp ? JSON.stringify(seccompProfile(loopback)) : "unconfined";

/**
 * The folders in memory. Their pages count against the memory limit, so their sizes together leave
 * enough memory for processes: a full folder gives the code ENOSPC and kills no process.
 */
function temporaryFiles({ memoryBytes, packages }: SandboxSpec) {
  const sizes = temporaryFileSizes(memoryBytes);
  const writable = `rw,nosuid,nodev,exec,mode=1777,size=${sizes.writable}`;
  // Only the supervisor writes there, so no smaller size is needed to limit the code.
  const readable = `rw,nosuid,nodev,noexec,mode=755,size=${memoryBytes}`;
  // Smaller than the memory limit, because pip needs memory too: the folder is full before pip is
  // killed.
  const installed = `rw,nosuid,nodev,exec,mode=755,size=${Math.floor(memoryBytes * 0.75)}`;
  // Replaces a file system where each opened file creates a message queue.
  const closed = "ro,nosuid,nodev,noexec";
  return {
    ShmSize: sizes.shm,
    Tmpfs: {
      "/code": readable,
      "/input": readable,
      "/output": writable,
      "/tmp": writable,
      "/dev/mqueue": closed,
      ...(packages === "memory" && { "/packages": installed }),
    },
    ...(packages === "disk" && { Mounts: [diskVolume("/packages")] }),
  };
}

function ulimit(name: string, limit: number) {
  return { Name: name, Soft: limit, Hard: limit };
}

/** A volume that the engine removes with the container. */
function diskVolume(Target: string) {
  return { Type: "volume" as const, Target, VolumeOptions: { NoCopy: true } };
}

function gpuRequest(ids: readonly string[]) {
  return { Driver: "nvidia", DeviceIDs: ids, Capabilities: [["gpu"]] };
}

/** What the create calls of all containers of an agent have in common. */
export function commonProfile(image: string, { agentId, agentName, leaseId }: SandboxLabels) {
  return {
    Image: image,
    User: "0:0",
    WorkingDir: "/",
    Labels: {
      [labels.agentId]: agentId,
      [labels.agentName]: agentName,
      // Empty instead of missing, because an image may set this label.
      [labels.leaseId]: leaseId ?? "",
    },
    Tty: false,
    OpenStdin: true,
    StdinOnce: true,
    // An image's own health check would run beside the code.
    Healthcheck: { Test: ["NONE"] },
  };
}

/** What a container may do that runs a program of the agent. Without these, it has no rights. */
interface Rights {
  readonly Binds?: string[];
  readonly CapAdd?: string[];
  readonly SecurityOpt: string[];
  readonly PidsLimit?: number;
  readonly MaskedPaths?: string[];
  readonly ReadonlyPaths?: string[];
  readonly CgroupnsMode?: "private";
  readonly Tmpfs?: Record<string, string>;
  readonly Memory?: number;
  readonly MemorySwap?: number;
}

/** Descriptors of a mother: four for each job, and those of zygotes. */
const OWN_OPEN_FILES = 8192;

/** The create call of a container that runs a program of the agent on the Python of the operator's image. */
function ownProfile(image: string, owner: SandboxLabels, rights: Rights) {
  const [entrypoint = "", ...command] = pid1Command;
  return {
    ...commonProfile(image, owner),
    Entrypoint: [entrypoint],
    Cmd: command,
    Hostname: hostname,
    // An image's LD_PRELOAD would run with the mother's rights.
    Env: ["LD_PRELOAD=", "LD_LIBRARY_PATH=", "LD_AUDIT="],
    StopTimeout: 1,
    NetworkDisabled: true,
    HostConfig: {
      NetworkMode: "none",
      ReadonlyRootfs: true,
      CapDrop: ["ALL"],
      IpcMode: "private",
      Init: false,
      // Set, because the engine's default may be above what this host allows.
      Ulimits: [
        { Name: "core", Soft: 0, Hard: 0 },
        { Name: "nofile", Soft: OWN_OPEN_FILES, Hard: OWN_OPEN_FILES },
      ],
      LogConfig: { Type: "none", Config: {} },
      ...rights,
    },
  };
}

/** What the containers of an agent's mothers have in common. */
export interface MotherSpec extends VolumeSpec {
  /** Jobs that run at once. */
  readonly slots: number;
  /** Bytes for all zygotes and jobs together; null for no limit. */
  readonly memoryBytes: number | null;
  readonly pids: number;
}

const filter = JSON.stringify(motherFilter());

/**
 * The create call of the mother. Source: Docker Engine API 1.41, ContainerCreate; SECURITY.md says what
 * each right is for.
 */
export function motherProfile(spec: MotherSpec, image: string, leaseId: string) {
  const { memoryBytes: memory } = spec;
  return ownProfile(
    image,
    { ...spec, leaseId },
    {
      Binds: bindsOf(spec, ":ro"),
      // Namespaces and mounts of zygotes; their ids; an end by force.
      CapAdd: ["SYS_ADMIN", "SETUID", "SETGID", "SETPCAP", "KILL", "DAC_OVERRIDE"],
      SecurityOpt: ["no-new-privileges", `seccomp=${filter}`, "apparmor=unconfined"],
      // The mother makes /proc/sys read-only itself: zygotes can mount a /proc only beside a whole one.
      MaskedPaths: [],
      ReadonlyPaths: [],
      CgroupnsMode: "private",
      Tmpfs: { "/run": "rw,nosuid,nodev,noexec,mode=755,size=1m" },
      PidsLimit: spec.pids,
      ...(memory === null ? {} : { Memory: memory, MemorySwap: memory }),
    },
  );
}

/** The volumes that the mothers of an agent read, and whose containers write in them. */
export interface VolumeSpec {
  /** Volume of the engine with the files of the images of jobs; mothers with the same ids share it. */
  readonly rootfs: string;
  /** Volume of the engine with the packages of this agent's jobs. */
  readonly bundles: string;
  readonly agentId: string;
  readonly agentName: string;
}

/** The create call of a container that writes in the volumes. */
export function unpackProfile(spec: VolumeSpec, image: string, leaseId: string) {
  return ownProfile(
    image,
    { ...spec, leaseId },
    {
      Binds: bindsOf(spec, ""),
      CapAdd: ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SYS_CHROOT"],
      SecurityOpt: ["no-new-privileges"],
      PidsLimit: 16,
    },
  );
}

/** The create call of a container that is never started: the engine exports its files. */
export function sourceProfile(spec: VolumeSpec, image: string, leaseId: string) {
  return ownProfile(image, { ...spec, leaseId }, { SecurityOpt: ["no-new-privileges"] });
}

/** The volumes in a container, at /rootfs and /bundles. */
const bindsOf = ({ rootfs, bundles }: VolumeSpec, mode: ":ro" | ""): string[] => [
  `${rootfs}:/rootfs${mode}`,
  `${bundles}:/bundles${mode}`,
];
