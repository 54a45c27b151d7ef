import { commonProfile, hostname } from "../sandbox/profile.ts";
import { motherProfile as motherFilter } from "../sandbox/seccomp.ts";
import { supervisorCommand } from "../sandbox/supervisor.ts";

/** What the containers of an agent's mothers have in common. */
export interface MotherSpec {
  /** Volume of the engine with the files of the images of jobs; mothers with the same ids share it. */
  readonly roots: string;
  /** Volume of the engine with the packages of this agent's jobs. */
  readonly sets: string;
  readonly agentId: string;
  readonly agentName: string;
  /** Jobs that run at once. */
  readonly slots: number;
  /** Bytes for all zygotes and jobs together; null for no limit. */
  readonly memoryBytes: number | null;
  readonly pids: number;
}

const filter = JSON.stringify(motherFilter());
/** Descriptors of the mother: four for each job, and those of zygotes. */
const openFiles = 8192;

/**
 * The create call of the mother. Source: Docker Engine API 1.41, ContainerCreate; SECURITY.md says what
 * each right is for.
 */
export function motherProfile(spec: MotherSpec, image: string, leaseId: string) {
  const { memoryBytes: memory } = spec;
  return profileOf(spec, image, leaseId, {
    Binds: volumesOf(spec, ":ro"),
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
  });
}

/** The create call of a container that writes in the volumes. */
export function unpackProfile(spec: MotherSpec, image: string, leaseId: string) {
  return profileOf(spec, image, leaseId, {
    Binds: volumesOf(spec, ""),
    CapAdd: ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SYS_CHROOT"],
    SecurityOpt: ["no-new-privileges"],
    PidsLimit: 16,
  });
}

/** The create call of a container that is never started: the engine exports its files. */
export function sourceProfile(spec: MotherSpec, image: string, leaseId: string) {
  return profileOf(spec, image, leaseId, { SecurityOpt: ["no-new-privileges"] });
}

const volumesOf = ({ roots, sets }: MotherSpec, mode: ":ro" | ""): string[] => [
  `${roots}:/roots${mode}`,
  `${sets}:/sets${mode}`,
];

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

function profileOf(spec: MotherSpec, image: string, leaseId: string, rights: Rights) {
  const [entrypoint = "", ...command] = supervisorCommand;
  return {
    ...commonProfile(image, { ...spec, leaseId }),
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
      // Said, because an engine's own limit may be one that this host does not allow.
      Ulimits: [
        { Name: "core", Soft: 0, Hard: 0 },
        { Name: "nofile", Soft: openFiles, Hard: openFiles },
      ],
      LogConfig: { Type: "none", Config: {} },
      ...rights,
    },
  };
}

export type MotherProfile = ReturnType<typeof motherProfile>;
