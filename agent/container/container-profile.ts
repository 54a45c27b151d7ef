import { pid1Command } from "../python/program.ts";
import { seccompProfile } from "../sandbox/filter/profiles.ts";
import type { SandboxSpec } from "../sandbox/spec.ts";
import { environmentOf, hostname, temporaryFileSizes } from "../sandbox/surroundings.ts";
import { commonProfile } from "./own-profile.ts";

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
