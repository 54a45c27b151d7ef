import type { ContainerEntry, Engine } from "../engine/engine.ts";
import { labels, namePrefix } from "../sandbox/labels.ts";

/** Whose containers to reap: those of dead agents with this name. */
export interface Owner {
  readonly agentName: string;
  /** The agent that runs the reaper. */
  readonly agentId: string;
  /** Whether this agent holds the lease, or keeps a container ready under that label. */
  readonly isHeld: (leaseId: string) => boolean;
  /** Null if this agent cannot see whether the other one is alive. */
  readonly isAlive: (agentId: string, place: string) => Promise<boolean | null>;
  readonly nowMs: () => number;
}

/** Longer than an agent takes to commit the ended container of a build. */
const ENDED_MS = 10 * 60_000;

/**
 * Returns a function that removes the containers left by dead agents and failed removals, and
 * returns their number.
 *
 * An agent of another host scope (engine/host-scope.ts) may be alive. It is, if its container runs: when an
 * agent dies, the engine closes the container's input, and the container ends. Ended containers of such an
 * agent are kept for ten minutes.
 *
 * @throws (the returned function) EngineError; the signal's reason.
 */
export function createReaper(
  engine: Engine,
  owner: Owner,
): (signal: AbortSignal) => Promise<number> {
  /** When containers were first seen stopped. */
  let endedMs = new Map<string, number>();

  async function isInUse({ id, labels: its, isRunning }: ContainerEntry): Promise<boolean> {
    const agentId = its[labels.agentId] ?? "";
    const leaseId = its[labels.leaseId];
    if (agentId === owner.agentId) {
      // Images that builds make have a blank label, which their containers inherit.
      return leaseId ? owner.isHeld(leaseId) : isRunning;
    }
    const lives = await owner.isAlive(agentId, its[labels.hostScope] ?? "");
    if (lives !== null) return lives;
    return isRunning || owner.nowMs() - (endedMs.get(id) ?? owner.nowMs()) < ENDED_MS;
  }

  return async (signal) => {
    const containers = await engine.list(labels.agentName, owner.agentName, signal);
    const ended = containers.filter(({ isRunning }) => !isRunning);
    const nowMs = owner.nowMs();
    endedMs = new Map(ended.map(({ id }) => [id, endedMs.get(id) ?? nowMs]));
    let removed = 0;
    for (const container of containers) {
      if (!isOfAgent(container) || (await isInUse(container))) continue;
      await engine.remove(container.id, signal);
      removed += 1;
    }
    return removed;
  };
}

/** Checks the name too: a container of another program may inherit our labels from its image. */
function isOfAgent({ name, labels: its }: ContainerEntry): boolean {
  return name.startsWith(namePrefix(its[labels.agentId] ?? ""));
}
