import type { ContainerEntry, Engine } from "./engine.ts";
import { labels, namePrefix } from "../sandbox/profile.ts";

/** Whose containers to reap: those of agents with this name that do not live any more. */
export interface Owner {
  readonly agentName: string;
  /** The agent that reaps. */
  readonly agentId: string;
  /** Whether the reaping agent holds the lease, or keeps what it started ahead under that label. */
  readonly isHeld: (leaseId: string) => boolean;
  /** Null where that cannot be seen from here. */
  readonly isAlive: (agentId: string, place: string) => Promise<boolean | null>;
  readonly nowMs: () => number;
}

/** More than an agent takes to make an image of a build's container that has ended. */
const ENDED_MS = 10 * 60_000;

/**
 * Removes the containers that a dead agent or a failed removal left, and returns their number.
 *
 * An agent in another place, see place.ts, may live. Its running containers prove it: a container
 * ends once its input does, and the engine ends that with the agent's connection. Those that have
 * ended are left alone for ten minutes.
 *
 * @throws (the returned function) EngineError; the signal's reason.
 */
export function createReaper(
  engine: Engine,
  owner: Owner,
): (signal: AbortSignal) => Promise<number> {
  /** When containers from other places were first seen not to run. */
  let endedMs = new Map<string, number>();

  async function isInUse({ id, labels: its, isRunning }: ContainerEntry): Promise<boolean> {
    const agentId = its[labels.agentId] ?? "";
    const leaseId = its[labels.leaseId];
    if (agentId === owner.agentId) {
      // Built images blank the label, and their containers take it over.
      return leaseId ? owner.isHeld(leaseId) : isRunning;
    }
    const lives = await owner.isAlive(agentId, its[labels.agentPlace] ?? "");
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

/** Somebody's container of an image that brings our labels along has another name. */
function isOfAgent({ name, labels: its }: ContainerEntry): boolean {
  return name.startsWith(namePrefix(its[labels.agentId] ?? ""));
}
