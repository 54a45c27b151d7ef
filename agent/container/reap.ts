import type { ContainerEntry, Engine } from "./engine.ts";
import { labels, namePrefix } from "../sandbox/profile.ts";

/** Whose containers to reap: those of agents with this name that do not live any more. */
export interface Owner {
  readonly agentName: string;
  /** The agent that reaps. */
  readonly agentId: string;
  /** Whether the reaping agent holds the lease, or keeps what it started ahead under that label. */
  readonly isHeld: (leaseId: string) => boolean;
  readonly isAlive: (agentId: string) => Promise<boolean>;
}

/**
 * Removes the containers that a dead agent or a failed removal left, and returns their number.
 *
 * @throws EngineError; the signal's reason.
 */
export async function reapContainers(
  engine: Engine,
  owner: Owner,
  signal: AbortSignal,
): Promise<number> {
  const containers = await engine.list(labels.agentName, owner.agentName, signal);
  let removed = 0;
  for (const container of containers) {
    if (!isOfAgent(container) || (await isInUse(container, owner))) continue;
    await engine.remove(container.id, signal);
    removed += 1;
  }
  return removed;
}

/** Somebody's container of an image that brings our labels along has another name. */
function isOfAgent({ name, labels: its }: ContainerEntry): boolean {
  return name.startsWith(namePrefix(its[labels.agentId] ?? ""));
}

async function isInUse({ labels: its, isRunning }: ContainerEntry, owner: Owner): Promise<boolean> {
  const agentId = its[labels.agentId] ?? "";
  const leaseId = its[labels.leaseId];
  if (agentId !== owner.agentId) return owner.isAlive(agentId);
  // Built images blank the label, and their containers take it over.
  return leaseId ? owner.isHeld(leaseId) : isRunning;
}
