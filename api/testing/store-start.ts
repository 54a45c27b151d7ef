import { join } from "node:path";
import { recordAgent } from "../store/agents/agents.ts";
import { database } from "../store/database.ts";
import { agentIds } from "./store-steps.ts";
import { openIn } from "./temp-store.ts";

export const tokenOf = (agentId: string): string => `token of ${agentId}`;

/** Makes a file with a schema and agents, which every run copies. */
export async function makeStart(folder: string): Promise<string> {
  const client = await openIn(folder);
  for (const id of agentIds) {
    const status = {
      agent: { id, name: id, version: "0", labels: {}, accepts: { job_types: null, builds: true } },
      slots: 1,
      gpus: { total: 0, free: 0 },
      warm: 0,
      engine: { available: true, version: null, runtimes: [] },
      breaker: { state: "closed", failure_count: 0, success_count: 0, last_failure: null },
    } as const;
    const engine = { ...status.engine, runtimes: [] };
    const lists = { engine, pool: [], leases: [], builds: [], images: [] };
    await recordAgent(database(client), { ...status, ...lists }, tokenOf(id), 0);
  }
  await client.execute("PRAGMA wal_checkpoint(TRUNCATE)");
  client.close();
  return join(folder, "airlock.db");
}
