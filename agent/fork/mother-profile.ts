import { ownProfile } from "../container/own-profile.ts";
import { motherProfile as motherFilter } from "../sandbox/filter/profiles.ts";
import { bindsOf, type VolumeSpec } from "../volume/volume-profile.ts";

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
