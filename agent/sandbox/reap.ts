import type { Engine } from "./engine.ts";
import { labels } from "./profile.ts";

/** Whose containers to reap: those of agents with this name that do not live any more. */
export interface Owner {
  readonly agentName: string;
  /** The agent that reaps; of its own containers only those that have ended go. */
  readonly agentId: string;
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
  for (const { id, isRunning, labels: its } of containers) {
    const agentId = its[labels.agentId] ?? "";
    const isLeft = agentId === owner.agentId ? !isRunning : !(await owner.isAlive(agentId));
    if (!isLeft) continue;
    await engine.remove(id, signal);
    removed += 1;
  }
  return removed;
}
