import { pid1Command } from "../python/program.ts";
import { labels } from "../sandbox/labels.ts";
import type { SandboxLabels } from "../sandbox/spec.ts";
import { hostname } from "../sandbox/surroundings.ts";

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
const openFiles = 8192;

/** The create call of a container that runs a program of the agent on the Python of the operator's image. */
export function ownProfile(image: string, owner: SandboxLabels, rights: Rights) {
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
        { Name: "nofile", Soft: openFiles, Hard: openFiles },
      ],
      LogConfig: { Type: "none", Config: {} },
      ...rights,
    },
  };
}
