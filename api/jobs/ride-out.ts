import { isStoreOutage } from "../store/outage.ts";
import type { Deps } from "../deps.ts";

const patienceMs = 60_000;
const pauseMs = 500;

/**
 * Does something again that a database out of reach has kept from succeeding: for a request whose
 * job is stored, or may be, and which would be sent again if it was refused. Until `patienceMs` have passed.
 */
export async function rideOut<T>({ now }: Pick<Deps, "now">, work: () => Promise<T>): Promise<T> {
  for (const giveUpAt = now() + patienceMs; ;) {
    try {
      return await work();
    } catch (error) {
      if (!isStoreOutage(error) || now() >= giveUpAt) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}
