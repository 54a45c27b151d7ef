import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "../../../clients/typescript/src/index.ts";
import { interleave, timed } from "../interleave.ts";
import type { Row } from "../row.ts";
import type { Service } from "../service.ts";

const SLOTS = 2;
const JOB_MS = 100;
const job = { code: `import time; time.sleep(${JOB_MS / 1000})` };
const LOADS = [10, 100];
/**
 * Its turn is the second at the latest: before it are the job that runs in its slot, and two of each other tenant
 * for all slots.
 */
const JOBS_BEFORE = 1 + (2 * LOADS.length) / SLOTS;
/** What the machine adds to each of those. */
const OVERHEAD_MS = 50;
const LOOK_MS = 20;

export const turns: Row = {
  name: "turns",
  what: `one job of a tenant, alone and beside ${LOADS.join(" and ")} waiting jobs of two others; ${SLOTS} slots, each job sleeps ${JOB_MS} ms`,
  goal: `beside them p50 ≤ alone + ${JOBS_BEFORE} jobs, each ${JOB_MS + OVERHEAD_MS} ms at most`,
  measure: async (world) => {
    await using service = await world.startService({
      config: { max_workers: SLOTS, max_queue_size: 1000 },
    });
    const light = await tenantOf(service, "light");
    const heavy = await Promise.all(
      LOADS.map(async (load) => ({ load, client: await tenantOf(service, `load-${load}`) })),
    );
    const runLight = () => timed(() => light.api.execute({ executeRequest: job }));
    const beside = async (): Promise<number> => {
      const loads = heavy.map(async ({ load, client }) => {
        const jobs = Array.from({ length: load }, () => job);
        const { batch_id } = await client.api.executeBatch({ batchRequest: { jobs } });
        return async () => {
          await client.batches.cancel(batch_id);
          while ((await client.batches.get(batch_id)).counts.running !== 0) await sleep(LOOK_MS);
        };
      });
      const ends = await Promise.all(loads);
      const tookMs = await runLight();
      for (const end of ends) await end();
      return tookMs;
    };
    await service.warmUp(world.samples(50));
    const alone = async () => (await service.settled(), runLight());
    const sides = [
      { name: "alone", once: alone },
      { name: `beside ${LOADS.join(" and ")}`, once: beside },
    ];
    return await interleave("ms", sides, { warmUp: world.samples(2), rounds: world.samples(20) });
  },
  reaches: (of) => of("beside").p50 <= of("alone").p50 + JOBS_BEFORE * (JOB_MS + OVERHEAD_MS),
};

/** Without keys, everybody may name a tenant. */
async function tenantOf({ url }: Service, tenant: string) {
  await connect({ url }).tenants.setLimits(tenant, {});
  return connect({ url, tenant });
}
