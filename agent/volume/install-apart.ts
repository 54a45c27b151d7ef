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
 * Installs packages in a container of their own, passes on their files, and lets the container be removed.
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
  // No limit of CPU time: pip and two compilers run there, and no code of a job or package.
  const own = { cpus: 0, memoryBytes, packages: "disk", preload: [] } as const;
  const labels = { ...spec.labels, leaseId: label };
  ownLabels.add(label);
  const forget = (): void => void ownLabels.delete(label);
  const sandbox = await openSandbox(engine, { ...spec, ...own, labels }, signal).catch(
    (error: unknown) => {
      forget();
      throw error;
    },
  );
  try {
    await sandbox.install({ requirements, from: { ...from, keep, maxBytes } }, signal);
  } finally {
    // Nobody waits for this: an engine takes seconds to remove many files. What is left, the reaper removes later.
    void sandbox
      .close()
      .catch(() => {})
      .finally(forget);
  }
}
