import { randomUUID } from "node:crypto";
import { openSandbox } from "../container/open-sandbox.ts";
import type { KeepPiece, WantedPackages } from "../sandbox/package-request.ts";
import type { SandboxSpec } from "../sandbox/spec.ts";
import type { VolumeDeps } from "./unpacker.ts";

/** What an installation may use. The limits of the job do not apply to it. */
export interface InstallLimits {
  /** Bytes of memory for pip: the packages themselves are on disk. */
  readonly memoryBytes: number;
  /** Bytes of the packages. */
  readonly maxBytes: number;
}

/**
 * Installs packages in a container of their own, and passes on their files. The container is then removed.
 *
 * @throws InstallError; EngineError; the signal's reason.
 */
export async function installApart(
  { engine, ownLabels }: Pick<VolumeDeps, "engine" | "ownLabels">,
  spec: SandboxSpec,
  { requirements, from }: WantedPackages,
  { memoryBytes, maxBytes }: InstallLimits,
  keep: () => Promise<KeepPiece>,
  signal: AbortSignal,
): Promise<void> {
  const label = `install-${randomUUID()}`;
  const own = { memoryBytes, packages: "disk", preload: [] } as const;
  const labels = { ...spec.labels, leaseId: label };
  ownLabels.add(label);
  try {
    const sandbox = await openSandbox(engine, { ...spec, ...own, labels }, signal);
    try {
      await sandbox.install({ requirements, from: { ...from, keep, maxBytes } }, signal);
    } finally {
      // If the engine does not remove it now, the reaper does later.
      await sandbox.close().catch(() => {});
    }
  } finally {
    ownLabels.delete(label);
  }
}
