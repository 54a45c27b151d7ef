import type { z } from "zod";
import type { AgentIdentity, AgentStatus } from "../shared/lease.ts";
import type { EngineWatch } from "./engine-watch.ts";
import type { Leases } from "./leases.ts";

/** What the agent tells the API of itself now. */
export function agentStatus(
  agent: AgentIdentity,
  { leases, engine }: { leases: Leases; engine: EngineWatch },
): z.input<typeof AgentStatus> {
  return {
    agent,
    slots: leases.size,
    warm: 0,
    engine: engine.health(),
    breaker: engine.breaker(),
    leases: leases.ids(),
  };
}

/** How many jobs the agent can take on now. */
export function freeSlots({ leases, engine }: { leases: Leases; engine: EngineWatch }): number {
  return engine.admits(leases.free(), leases.size - leases.free());
}
