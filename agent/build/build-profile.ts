import { createHash } from "node:crypto";
import type { Duplex } from "node:stream";
import type { BuildLimits } from "../policy/policy.ts";
import { commonProfile } from "../container/own-profile.ts";
import { STANDS_IN_FOR } from "../image/stand-in.ts";
import { labels } from "../sandbox/labels.ts";
import { installerProgram } from "../python/program.ts";
import type { SandboxLabels } from "../sandbox/spec.ts";

/** A request to make an image from a base image by installing packages. */
export interface ImageRequest {
  readonly baseImage: string;
  readonly requirements: readonly string[];
  readonly pipEnv: Readonly<Record<string, string>>;
  /** Files that are copied to /tmp/airlock-build. */
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

/**
 * The body of the create call. It sets no runtime, so that the engine's default is used: gVisor
 * keeps written files to itself, and there would be nothing to commit.
 */
export function buildProfile(request: ImageRequest, { boundsDisk }: { boundsDisk: boolean }) {
  const { memoryBytes, cpus, pids, diskBytes } = request.limits;
  return {
    ...commonProfile(request.baseImage, request.owner),
    Entrypoint: [],
    Cmd: ["python3", "-I", "-S", "-B", "-c", installerProgram],
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
      // An anonymous volume is removed with the container and never becomes part of the image.
      Mounts: [{ Type: "volume" as const, Target: "/tmp" }],
      LogConfig: { Type: "none", Config: {} },
    },
  };
}

/**
 * The Dockerfile instructions of the commit. They blank the labels of the base image and the
 * container, which must not be inherited.
 */
export function imageChanges({ jobType, repository, tags, requirements }: ImageRequest): string[] {
  const hash = createHash("sha256").update(JSON.stringify(requirements)).digest("hex");
  const imageLabels = {
    "io.airlock.job-type": jobType,
    // Still there after a rebuild has taken the tags away.
    "io.airlock.repository": repository,
    "io.airlock.version": tags[0] ?? "",
    "io.airlock.requirements": hash,
    [STANDS_IN_FOR]: "",
    [labels.agentId]: "",
    [labels.agentName]: "",
    [labels.hostScope]: "",
    [labels.leaseId]: "",
  };
  return [
    ...Object.entries(imageLabels).map(([name, value]) => `LABEL ${name}="${value}"`),
    'CMD ["python3"]',
  ];
}
