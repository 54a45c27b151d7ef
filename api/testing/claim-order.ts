import { claimNext } from "../store/jobs/claim.ts";
import { submitExecution } from "../store/jobs/submit.ts";
import { newExecution } from "./temp-store.ts";
import { store } from "./use-store.ts";

/** Of the agent that claims. */
export const terms = { agentId: "a", expiresAt: 1000, now: 100 };
export const offer = (jobType: string, gpus = 0) => ({
  jobType,
  gpus,
  jobVersion: "v",
  jobRef: null,
});
export const plain = offer("default");

/** Submits a job for each letter, in order. The letter is the tenant; a capital "K" is an urgent job of tenant k. */
export async function submit(keys: string, changes = {}): Promise<string[]> {
  const ids: string[] = [];
  for (const key of keys) {
    const isUrgent = key !== key.toLowerCase();
    const execution = newExecution({
      tenant: key.toLowerCase(),
      jobType: isUrgent ? "urgent" : "default",
      priority: isUrgent ? 2 : 0,
      ...changes,
    });
    await submitExecution(store.db, execution, 10_000);
    ids.push(execution.id);
  }
  return ids;
}

/** Leases jobs; returns the tenant of each, or the type of those of other types. */
export async function claimed(slots: number, gpus = 0, offers = [plain, offer("urgent")]) {
  const rows = await claimNext(store.db, terms, { slots, gpus }, offers);
  return rows.map(({ tenant, jobType }) =>
    jobType === "urgent" ? tenant.toUpperCase() : jobType === "default" ? tenant : jobType,
  );
}

/** The tenants of the jobs that a claim leases, in order. */
export const order = async (jobs: number) => (await claimed(jobs)).join("");
