import { isLab } from "../../shared/testing/tier.ts";
import type { Variables } from "./test-service.ts";

/** Variables of an agent, by where it runs its jobs and sessions. */
export const places = {
  forks: { AIRLOCK_CONTAINER_BACKEND: "zygote" },
  containers: { AIRLOCK_CONTAINER_BACKEND: "engine" },
  gVisor: { AIRLOCK_CONTAINER_BACKEND: "engine", AIRLOCK_CONTAINER_RUNTIME: "runsc" },
} satisfies Record<string, Variables>;

export type Place = keyof typeof places;

/** The places of rows that the lab repeats under gVisor. */
export const placesOfTier: readonly Place[] = isLab ? ["gVisor"] : ["forks", "containers"];
