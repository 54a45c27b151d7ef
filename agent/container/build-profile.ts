import { createHash } from "node:crypto";
import type { Duplex } from "node:stream";
import type { BuildLimits } from "../policy/policy.ts";
import { labels } from "../sandbox/profile.ts";
import { loadModules, source } from "../sandbox/supervisor.ts";
import type { SandboxLabels } from "../sandbox/types.ts";

/** An image to make of another one by installing packages into it. */
export interface ImageRequest {
  readonly baseImage: string;
  readonly requirements: readonly string[];
  readonly pipEnv: Readonly<Record<string, string>>;
  /** Files that go along, under /tmp/airlock-build. */
  readonly files: readonly {
    readonly name: string;
    readonly path: string;
    readonly sizeBytes: number;
  }[];
  /** Gets what pip says to its proxy, one connection after the other. */
  readonly serve: (connection: Duplex) => void;
  readonly jobType: string;
  readonly repository: string;
  readonly tags: readonly string[];
  readonly owner: SandboxLabels;
  readonly limits: BuildLimits;
}

const program = loadModules({
  link: source("link"),
  tunnel: source("tunnel"),
  install: source("install"),
});

/** Label of an image that serves in the place of the one it names. */
export const STANDS_IN_FOR = "io.airlock.stands-in-for";

/**
 * The body of the create call. The engine's default runtime: gVisor keeps what is written to
 * itself, so that there would be nothing to commit.
 */
export function buildProfile(request: ImageRequest, { boundsDisk }: { boundsDisk: boolean }) {
  const { agentId, agentName, leaseId } = request.owner;
  const { memoryBytes, cpus, pids, diskBytes } = request.limits;
  return {
    Image: request.baseImage,
    Entrypoint: [],
    Cmd: ["python3", "-I", "-S", "-B", "-c", program],
    User: "0:0",
    WorkingDir: "/",
    Labels: {
      [labels.agentId]: agentId,
      [labels.agentName]: agentName,
      [labels.leaseId]: leaseId ?? "",
    },
    Tty: false,
    OpenStdin: true,
    StdinOnce: true,
    Healthcheck: { Test: ["NONE"] },
    NetworkDisabled: true,
    HostConfig: {
      NetworkMode: "none",
      CapDrop: ["ALL"],
      CapAdd: ["CHOWN", "DAC_OVERRIDE", "FOWNER"],
      SecurityOpt: ["no-new-privileges"],
      Memory: memoryBytes,
      MemorySwap: memoryBytes,
      NanoCpus: Math.round(cpus * 1e9),
      PidsLimit: pids,
      ...(boundsDisk && { StorageOpt: { size: String(diskBytes) } }),
      // Anonymous: gone with the container, and never part of the image.
      Mounts: [{ Type: "volume" as const, Target: "/tmp" }],
      LogConfig: { Type: "none", Config: {} },
    },
  };
}

export type BuildProfile = ReturnType<typeof buildProfile>;

/** What the image is told beyond its files; the labels of base and container must not live on. */
export function imageChanges({ jobType, repository, tags, requirements }: ImageRequest): string[] {
  const hash = createHash("sha256").update(JSON.stringify(requirements)).digest("hex");
  const imageLabels = {
    "io.airlock.job-type": jobType,
    // Stays when a rebuild has taken the tags away.
    "io.airlock.repository": repository,
    "io.airlock.version": tags[0] ?? "",
    "io.airlock.requirements": hash,
    [STANDS_IN_FOR]: "",
    [labels.agentId]: "",
    [labels.agentName]: "",
    [labels.agentPlace]: "",
    [labels.leaseId]: "",
  };
  return [
    ...Object.entries(imageLabels).map(([name, value]) => `LABEL ${name}="${value}"`),
    'CMD ["python3"]',
  ];
}
