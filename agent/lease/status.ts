import type {
  AgentIdentity,
  AgentStatus,
  ImageLanguages,
  LeasedBuild,
} from "../../shared/wire/agent/lease.ts";
import type { EngineMonitor } from "../health/engine-monitor.ts";
import type { Missing } from "../image/fetch-images.ts";
import type { Gpus } from "../backend/gpus.ts";
import type { Inventory } from "../image/inventory.ts";
import type { Leases } from "./leases.ts";
import type { SandboxSource } from "../sandbox/sandbox-source.ts";

export type StatusDeps = {
  readonly leases: Leases;
  /** Builds use no slot: one may run while every slot runs a job. */
  readonly builds: Leases<LeasedBuild>;
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
export function agentStatus(
  agent: AgentIdentity,
  { leases, builds, engine, gpus, inventory, sandboxes, missingImages, languages }: StatusDeps,
): AgentStatus {
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
    leases: leases.ids(),
    builds: builds.ids(),
    images: [...inventory.present()],
  };
}

/** How many jobs the agent can take now. */
export function freeSlots({ leases, engine }: Pick<StatusDeps, "leases" | "engine">): number {
  return engine.slotsToOffer(leases.free(), leases.size - leases.free());
}

export function freeBuilds({ builds, engine }: Pick<StatusDeps, "builds" | "engine">): number {
  return engine.slotsToOffer(builds.free(), builds.size - builds.free());
}
