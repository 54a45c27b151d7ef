import { createHash } from "node:crypto";
import type { VolumeCalls, VolumeEntry } from "../engine/volume-calls.ts";

/** The volume with the files of images, for all mothers whose ids begin here. */
export const rootfsVolume = (firstId: number): string => `airlock-rootfs-${firstId}`;

/** The volume with the packages of an agent's jobs. */
export function bundlesVolume(agentName: string): string {
  return `airlock-bundles-${createHash("sha256").update(agentName).digest("hex").slice(0, 16)}`;
}

/**
 * How long a volume must be unused before another agent removes it, in ms. An agent that forks jobs
 * always has a container that uses its volume. An agent that comes back later installs its packages again.
 */
const unusedMs = 3600_000;

/**
 * Returns a function that removes the volumes of agents that are gone, and returns how many. An agent
 * counts as gone if its volume was unused at each call for an hour.
 *
 * @param own names of this agent's volumes.
 * @throws (the returned function) EngineError; the signal's reason.
 */
export function createVolumeReaper(
  engine: Pick<VolumeCalls, "unusedVolumes" | "removeVolume">,
  own: readonly string[],
  nowMs: () => number,
): (signal: AbortSignal) => Promise<number> {
  /** When volumes were first seen unused. */
  let sinceMs = new Map<string, number>();

  return async (signal) => {
    const unused = (await engine.unusedVolumes(signal)).filter(
      (volume) => isOfMother(volume) && !own.includes(volume.name),
    );
    const now = nowMs();
    sinceMs = new Map(unused.map(({ name }) => [name, sinceMs.get(name) ?? now]));
    const doomed = [...sinceMs].filter(([, since]) => now - since >= unusedMs);
    for (const [name] of doomed) {
      // A volume that cannot be removed is tried again in an hour.
      sinceMs.delete(name);
      await engine.removeVolume(name, signal);
    }
    return doomed.length;
  };
}

/** Checks the name too, because an agent may have volumes that are not for mothers. */
function isOfMother({ name, agentName }: VolumeEntry): boolean {
  return agentName === "" ? /^airlock-rootfs-\d+$/.test(name) : name === bundlesVolume(agentName);
}
