import type {
  AgentIdentity,
  AgentStatus,
  ImageLanguages,
  LeasedBuild,
} from "../../shared/wire/agent/lease.ts";
import type { LeasedSession } from "../../shared/wire/agent/session.ts";
import type { EngineMonitor } from "../health/engine-monitor.ts";
import type { Missing } from "../image/fetch-images.ts";
import type { Gpus } from "../backend/gpus.ts";
import type { Inventory } from "../image/inventory.ts";
import type { LeaseReply, Leases } from "./leases.ts";
import type { SandboxSource } from "../sandbox/sandbox-source.ts";

export type StatusDeps = {
  readonly leases: Leases;
  /** Builds use no slot: one may run while every slot runs a job. */
  readonly builds: Leases<LeasedBuild>;
  /** Calls of its sessions: they use no slot. */
  readonly calls: Leases;
  readonly sessions: Leases<LeasedSession>;
  readonly engine: EngineMonitor;
  readonly inventory: Inventory;
  readonly gpus: Pick<Gpus, "total" | "free">;
  readonly sandboxes: Pick<SandboxSource, "stats" | "mountsFiles">;
  /** Built images that the API wants here and that could not be fetched, with the reason. */
  readonly missingImages: () => Missing;
  /** What images have of the usual languages. */
  readonly languages: { readonly known: () => ImageLanguages };
};

/** The current state of the agent, as sent to the API. */
export function agentStatus(agent: AgentIdentity, deps: StatusDeps): AgentStatus {
  const { leases, builds, calls, sessions, engine, gpus, inventory, sandboxes } = deps;
  const { missingImages, languages } = deps;
  const kinds = sandboxes.stats();
  const missing_images = missingImages();
  const inputs = sandboxes.mountsFiles() ? ("mount" as const) : ("frames" as const);
  return {
    agent: { ...agent, accepts: { ...agent.accepts, inputs, languages: languages.known() } },
    slots: leases.size,
    gpus: { total: gpus.total, free: gpus.free() },
    warm: kinds.reduce((sum, { ready }) => sum + ready, 0),
    pool: kinds,
    engine: { ...engine.health(), ...(missing_images.length > 0 && { missing_images }) },
    breaker: engine.breaker(),
    leases: [...leases.ids(), ...calls.ids()],
    builds: builds.ids(),
    ...(sessions.size > 0 && { sessions: sessions.ids() }),
    images: [...inventory.present()],
  };
}

/** How many jobs, builds or sessions the agent can take now. */
export function freePlaces(
  { engine }: Pick<StatusDeps, "engine">,
  held: Pick<Leases, "size" | "free">,
): number {
  return engine.slotsToOffer(held.free(), held.size - held.free());
}

/** Applies a reply to a status to all leases. */
export function learnLeases(
  { leases, calls, builds, sessions }: StatusDeps,
  reply: LeaseReply,
  status: AgentStatus,
  askedMs: number,
): void {
  leases.learn(reply, status.leases, askedMs);
  calls.learn(reply, status.leases, askedMs);
  builds.learn(reply, status.builds, askedMs);
  sessions.learn(reply, status.sessions ?? [], askedMs);
}
