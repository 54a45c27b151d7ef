import { isStoreOutage } from "../store/outage.ts";
import type { Deps } from "../deps.ts";

const patienceMs = 60_000;
const pauseMs = 500;

/**
 * Repeats work for up to `patienceMs` while the database is out of reach. It is for a request whose job
 * is or may be stored: a client that got an error would send the job again.
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
